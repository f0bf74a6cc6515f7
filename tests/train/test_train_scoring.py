"""Scores of sentence pairs equal a slow reference, whatever the batches; bad pairs are errors that name their line."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from build_fixtures import run_build
from refusals import check_refused
from sentence_pairs import make_pairs
from toy_language import make_sentences, train_model

from albert_data.cli.main import run as run_command
from albert_data.errors import CheckpointError, ConfigError, InputError, TokenizerError
from albert_data.interop.scoring import MaskedLm, score_pairs
from albert_data.interop.sentence_pairs import Accuracy, ScoreConfig, ScoredPairs, SentencePair, read_pairs
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.words import find_word_starts
from albert_data.train import loop
from albert_data.train.batch import Batch
from albert_data.train.checkpoint import list_checkpoints, load_model
from albert_data.train.config import AlbertConfig, TrainConfig
from albert_data.train.model import Albert

safetensors = pytest.importorskip("safetensors.torch", reason="the train extra is not installed")
huggingface = pytest.importorskip("albert_data.interop.huggingface")
scoring = pytest.importorskip("albert_data.interop.scoring")

CPU = ScoreConfig(device="cpu")
SHAPE = AlbertConfig(
    vocab_size=500, max_positions=64, embedding_size=16, hidden_size=32, num_layers=2, num_heads=2, ffn_size=64
)


@pytest.fixture(scope="module")
def model(tokenizer) -> Albert:
    torch.manual_seed(1)
    model = Albert(dataclasses.replace(SHAPE, vocab_size=tokenizer.vocab_size)).eval()
    with torch.no_grad():  # with weights from N(0, 0.02) all scores would be nearly equal
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


@pytest.fixture(scope="module")
def pairs() -> list[SentencePair]:
    """English and Chinese, of many lengths, with words of several pieces, a long one, unknown characters."""
    texts = [*make_sentences(36, seed=5), "extraordinary unmistakable words", "a", "🙂 signs", "水", "naïve Café"]
    texts.append(" ".join(["water"] * 30))
    return [SentencePair(good=one, bad=two, group=one[:1]) for one, two in zip(texts, texts[1:], strict=False)]


@torch.no_grad()
def reference_score(model: Albert, tokenizer: Tokenizer, text: str) -> float:
    """One sentence, one mask at a time, by the model's own forward pass for training."""
    pieces = tokenizer.encode([text])[0].astype(np.int64).tolist()
    starts = find_word_starts(np.array(pieces), tokenizer.word_rule()).tolist()
    total = 0.0
    for target in range(len(pieces)):
        seen = list(pieces)
        for later in range(target, len(pieces)):
            if later > target and starts[later]:
                break
            seen[later] = tokenizer.mask_id
        ids_BT = torch.tensor([[tokenizer.cls_id, *seen, tokenizer.sep_id]])
        batch = Batch(
            input_ids_BT=ids_BT,
            segment_ids_BT=torch.zeros_like(ids_BT),
            valid_BT=torch.ones_like(ids_BT, dtype=torch.bool),
            masked_indices_N=torch.tensor([target + 1]),
            masked_labels_N=torch.tensor([pieces[target]]),
            sop_labels_B=torch.tensor([-1]),
            num_tokens=ids_BT.numel(),
            num_masked=1,
            num_pairs=0,
        )
        total += float(torch.log_softmax(model(batch).mlm_logits_NV[0].double(), 0)[pieces[target]])
    return total


def scores_of(scored: ScoredPairs) -> np.ndarray:
    return np.array([scored.good_scores, scored.bad_scores]).T


# ---- scores ----


def test_scores_equal_the_reference_whatever_the_batches(model, tokenizer, pairs):
    expected = [[reference_score(model, tokenizer, text) for text in (pair.good, pair.bad)] for pair in pairs]
    for config in (CPU, *(dataclasses.replace(CPU, batch_tokens=number) for number in (1, 50))):
        scored = score_pairs(MaskedLm(model, tokenizer), pairs, config)
        np.testing.assert_allclose(scores_of(scored), expected, rtol=0, atol=1e-4)
    texts = {text for pair in pairs for text in (pair.good, pair.bad)}
    assert scored.num_pieces == sum(len(tokenizer.encode([text])[0]) for text in texts)


def test_sentences_of_equal_pieces_tie_and_count_as_wrong(model, tokenizer):
    pairs = [SentencePair(good="the  water", bad="the water "), SentencePair(good="water", bad="the water")]
    scored = score_pairs(MaskedLm(model, tokenizer), pairs, CPU)
    assert scored.good_scores[0] == scored.bad_scores[0] == scored.bad_scores[1]
    assert scored.is_right[0] is False
    assert scored.num_sentences == 2


def test_bfloat16_changes_scores_by_rounding_only(model, tokenizer, pairs):
    one = scores_of(score_pairs(MaskedLm(model, tokenizer), pairs, CPU))
    other = scores_of(score_pairs(MaskedLm(model, tokenizer), pairs, dataclasses.replace(CPU, precision="bf16")))
    np.testing.assert_allclose(one, other, rtol=0.02)
    assert (one != other).any()


def test_what_can_not_be_scored_is_named_with_its_line(model, tokenizer):
    lm, fitting = MaskedLm(model, tokenizer), " ".join(["water"] * (SHAPE.max_positions - 2))
    score_pairs(lm, [SentencePair(good="water", bad=fitting)], CPU)
    broken = Albert(model.config)
    torch.nn.init.constant_(broken.mlm_head.bias, math.nan)
    for of, good, bad, kind, named in (
        (lm, "water", fitting + " water", InputError, "x.jsonl, line 7: bad has 65 & 64 positions"),
        (lm, "\u200b", "a", InputError, "x.jsonl, line 7: good has no pieces"),
        (MaskedLm(broken, tokenizer), "a", "b", CheckpointError, "line 7: & is not a number"),
    ):
        pairs = [SentencePair(good=good, bad=bad, origin="x.jsonl, line 7")]
        check_refused(lambda of=of, pairs=pairs: score_pairs(of, pairs, CPU), kind, named)
    other = Tokenizer(train_model(vocab_size=300), "")
    check_refused(lambda: MaskedLm(model, other), ConfigError, "has 300 pieces, but")


# ---- accuracy ----


def test_the_accuracy_is_counted_by_group_with_its_standard_error():
    pairs = [SentencePair(good="a", bad="b", group=name) for name in ("x", "x", "x", "x", "y", "y")]
    scores = {"good_scores": [-1, -1, -1, -3, -1, -2], "bad_scores": [-2] * 6}  # the last one is a tie
    scored = ScoredPairs(pairs=pairs, **scores, num_sentences=2, num_pieces=2, seconds=1.0)
    assert scored.groups() == {"x": Accuracy(num_pairs=4, num_right=3), "y": Accuracy(num_pairs=2, num_right=1)}
    assert scored.overall == Accuracy(num_pairs=6, num_right=4)
    errors = [math.sqrt(0.75 * 0.25 / 4), math.sqrt(0.5 * 0.5 / 2)]
    assert [group.standard_error for group in scored.groups().values()] == pytest.approx(errors)
    assert scored.mean_of_groups() == pytest.approx((0.625, math.hypot(*errors) / 2))


# ---- reading ----

GOOD_LINE = '{"good": "a b", "bad": "b a"}'


def test_pairs_are_read_from_a_file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    text = f'\ufeff{GOOD_LINE}\r\n\n{{"good": "水", "bad": "x", "group": "g", "more": 1}}'.encode()
    path.write_bytes(text)
    first, second = read_pairs(str(path))
    assert first == SentencePair(good="a b", bad="b a", group="all", origin=f"{path}, line 1")
    assert second == SentencePair(good="水", bad="x", group="g", origin=f"{path}, line 3")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        # Python 3.14 has the stack for it, and finds the line's end.
        ('{"good": "a", "bad": "b", "more": ' + "[" * 10_000, "(maximum recursion depth|Input data was truncated)"),
        ('{"good": "\udcff"}', ".*can't decode byte 0xff"),
        ('{"good": "a"}', "Object missing required field `bad`"),
        ('{"good": "a", "bad": " \\t"}', "bad is empty"),
        ('{"good": "a", "bad": "\\ud800"}', "Input data was truncated"),
    ],
)
def test_a_bad_line_is_refused_with_file_and_line(tmp_path, line, message):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(f"{GOOD_LINE}\n{line}\n".encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=f"pairs.jsonl, line 2:? {message}") as caught:
        read_pairs(str(path))
    assert "\n" not in str(caught.value)


def test_a_line_that_takes_much_memory_is_refused_before_it_is_held(tmp_path):
    with open(tmp_path / "p.jsonl", "wb") as file:
        file.write(b'{"good": "a", "bad": "b"}\n{"good": "' + b"word " * 20_000_000)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"p\.jsonl, line 2 has over 1,048,576 bytes; each line needs"):
        read_pairs(str(tmp_path / "p.jsonl"))
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_files_that_hold_no_pairs_are_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    for name, message in {
        "empty.jsonl": "holds no pairs",
        "missing.jsonl": "can't be read: No such file",
        ".": "can't be read: Is a directory",
    }.items():
        with pytest.raises(InputError, match=message):
            read_pairs(str(tmp_path / name))


# ---- models ----


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tokenizer) -> Path:
    """A run of two steps over a real build."""
    here = tmp_path_factory.mktemp("trained")
    documents = ["\n".join(make_sentences(12, seed)) for seed in range(40)]
    (here / "corpus.txt").write_text("\n\n".join(documents), encoding="utf-8")
    run_build(here / "corpus.txt", here / "shards", tokenizer, max_seq_len=64)
    config = TrainConfig(preset="tiny", lr=1e-3, steps=2, save_every=1, device="cpu", eval_every=2)
    loop.train(here / "shards", here / "run", config)
    return here / "run"


def write_pairs(path: Path, count: int = 6) -> list[dict[str, str]]:
    made = list(make_pairs(count))
    path.write_text("".join(json.dumps(pair) + "\n" for pair in made))
    return made


def command(*arguments: object) -> int:
    return run_command(["score", *map(str, arguments), "--device", "cpu"])


def test_the_command_prints_a_table_of_at_most_80_columns(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(trained.parent)
    write_pairs(tmp_path / "pairs.jsonl")
    with (tmp_path / "pairs.jsonl").open("a") as file:
        file.write(json.dumps({"good": "a", "bad": "b", "group": "水" * 60 + "\n\x1b[31m"}))
    assert command("run", tmp_path / "pairs.jsonl") == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head == "Model run/checkpoints/step-00000002"
    assert rows[2].endswith(" -")  # of one pair there is no error
    assert max(len(row) + row.count("水") for row in rows) <= 80
    assert "\x1b" not in "".join(rows)


def test_the_scores_are_not_written_over_what_the_command_reads(trained, tmp_path, capsys):
    run, pairs = Path(shutil.copytree(trained, tmp_path / "run")), tmp_path / "pairs.jsonl"
    write_pairs(pairs)
    model, step = tmp_path / "model", tmp_path / "step"
    huggingface.export_run(run, model)
    shutil.copytree(list_checkpoints(run)[-1], step)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    used = {
        model: ("config.json", "model.safetensors", "tokenizer.json", "README.md"),
        run: ("run.json", "checkpoints/step-00000001/state.json", "../step/model.safetensors"),
    }
    for place, names in used.items():
        more = ("--checkpoint", step) if place == run else ()
        for name in (*names, "../pairs.jsonl", *(["tokenizer/spiece.model"] if more else [])):
            assert command(place, pairs, *more, "-o", place / name) == 1
            assert "which is read here; name another file" in capsys.readouterr().err, name
    assert files == {path: path.read_bytes() for path in files}
    assert command(model, pairs, "-o", model / "scores.jsonl") == 0


def test_the_command_writes_the_scores_of_each_pair(trained, tmp_path, capsys):
    made, out = write_pairs(tmp_path / "pairs.jsonl"), tmp_path / "scores.jsonl"
    assert command(trained, tmp_path / "pairs.jsonl", "--json", "-o", out) == 0
    summary = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    lm, _ = scoring.load_masked_lm(trained)
    expected = score_pairs(lm, read_pairs(str(tmp_path / "pairs.jsonl")), CPU)
    assert [{name: line[name] for name in ("good", "bad", "group")} for line in lines] == made
    assert [[line["good_score"], line["bad_score"]] for line in lines] == scores_of(expected).tolist()
    assert summary == {"model": str(list_checkpoints(trained)[-1]), **expected.to_dict()}
    assert list(summary["groups"]) == ["agreement", "word order"]


def test_a_run_is_scored_by_any_of_its_checkpoints_and_its_own_tokenizer(trained):
    first = list_checkpoints(trained)[0]
    lm, origin = scoring.load_masked_lm(trained, checkpoint=first)
    own = Tokenizer((trained / "tokenizer" / "spiece.model").read_bytes(), "own")
    pairs = [SentencePair(good="The water.", bad="Water the.")]
    assert origin == first
    assert scores_of(score_pairs(lm, pairs, CPU)) == pytest.approx(
        np.array([[reference_score(load_model(first), own, text) for text in ("The water.", "Water the.")]]), abs=1e-4
    )


def test_an_exported_folder_gives_the_scores_of_its_run_without_transformers(trained, tmp_path, pairs, monkeypatch):
    huggingface.export_run(trained, tmp_path / "model")
    monkeypatch.setitem(sys.modules, "transformers", None)
    scored = [score_pairs(scoring.load_masked_lm(path)[0], pairs, CPU) for path in (trained, tmp_path / "model")]
    np.testing.assert_allclose(*map(scores_of, scored), rtol=0, atol=1e-5)


def test_a_folder_without_a_model_is_an_error_in_one_line(tmp_path, capsys):
    write_pairs(tmp_path / "pairs.jsonl")
    for more, message in ((), "neither a training run nor a Hugging Face"), (("--checkpoint", "x"), "leave out --"):
        assert command(tmp_path, tmp_path / "pairs.jsonl", *more) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert message in line


def update_json(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_an_albert_whose_text_is_treated_otherwise_is_refused(trained, tmp_path):
    huggingface.export_run(trained, tmp_path / "model")
    update_json(tmp_path / "model" / "tokenizer_config.json", do_lower_case=True)
    with pytest.raises(TokenizerError, match="both or neither of lower case and removed accents"):
        scoring.load_masked_lm(tmp_path / "model")
    (tmp_path / "model" / "spiece.model").unlink()
    with pytest.raises(TokenizerError, match="a spiece.model is needed"):
        scoring.load_masked_lm(tmp_path / "model")


def test_a_published_folder_without_settings_of_its_tokenizer_has_those_of_transformers(trained, tmp_path):
    huggingface.export_run(trained, tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").unlink()
    lm, _ = scoring.load_masked_lm(tmp_path / "model")
    plain, _ = scoring.load_masked_lm(trained)
    assert lm.encode(["Thé  RIVER"])[0].input_ids.tolist() == plain.encode(["the river"])[0].input_ids.tolist()


def test_weights_are_read_through_a_link_and_not_written_over(trained, tmp_path, capsys):
    folder, blob = tmp_path / "model", tmp_path / "blob"  # as in the Hub's cache
    huggingface.export_run(trained, folder)
    (folder / "model.safetensors").rename(blob)
    (folder / "model.safetensors").symlink_to(blob)
    before = blob.read_bytes()
    write_pairs(tmp_path / "pairs.jsonl")
    assert command(folder, tmp_path / "pairs.jsonl") == 0
    capsys.readouterr()
    assert command(folder, tmp_path / "pairs.jsonl", "-o", blob) == 1
    assert "which is read here" in capsys.readouterr().err
    assert blob.read_bytes() == before


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: torch.save({}, path),
        lambda path: None,
        lambda path: safetensors.save_file({"w": torch.zeros(2, dtype=torch.int8)}, path),
    ],
    ids=["FIFO", "pickle", "missing", "integers"],
)
def test_weights_are_a_regular_file_of_floats(trained, tmp_path, make):
    huggingface.export_run(trained, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    make(tmp_path / "model" / "model.safetensors")
    with pytest.raises(CheckpointError, match="not a regular file|can't be read|is missing|floats of 16"):
        scoring.load_masked_lm(tmp_path / "model")


def test_text_is_normalised_as_for_the_training_also_after_an_export(trained, tmp_path):
    """As if the shards of the run had the normalization albert-v2."""
    run, exported = tmp_path / "run", tmp_path / "model"
    shutil.copytree(trained, run)
    identity = json.loads((run / "run.json").read_text())["identity"]
    update_json(run / "run.json", identity=identity | {"tokenizer's normalization": "albert-v2"})
    huggingface.export_run(run, exported)
    settings = json.loads((exported / "tokenizer_config.json").read_text())
    assert (settings["do_lower_case"], settings["keep_accents"], settings["remove_space"]) == (True, False, True)
    plain, _ = scoring.load_masked_lm(trained)
    expected = plain.encode(["the river"])[0].input_ids.tolist()
    for folder in (run, exported):
        lm, _ = scoring.load_masked_lm(folder)
        assert isinstance(lm, scoring.MaskedLm)
        assert lm.encode(["Thé  RIVER"])[0].input_ids.tolist() == expected
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(exported)
    assert theirs("Thé  RIVER")["input_ids"] == expected
