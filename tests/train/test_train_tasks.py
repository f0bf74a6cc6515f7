"""The model has the head of the shards' sentence task, and everything that shows its figures names that task."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from build_fixtures import make_documents, run_build, small_tasks, to_txt
from refusals import check_refused
from toy_rows import FIRST_ORDINARY, MASK, SMALL, TINY, FakeShards

from albert_data.cli.main import run as run_command
from albert_data.errors import CheckpointError, ConfigError
from albert_data.examples.pair_tasks import NO_LABEL, PAIR_TASKS
from albert_data.interop import ShardDataset
from albert_data.runs.figures import read_run
from albert_data.runs.page import make_run_page
from albert_data.runs.view import describe_run
from albert_data.text.wording import format_share
from albert_data.tokenizer.model import Tokenizer
from albert_data.train import loop
from albert_data.train.batch import Batch
from albert_data.train.checkpoint import list_checkpoints, load_checkpoint, load_model
from albert_data.train.config import MODEL_PRESETS, RECIPES, TrainConfig
from albert_data.train.device import ALONE, choose_precision
from albert_data.train.flops import training_flops
from albert_data.train.folder import check_shape
from albert_data.train.loader import ShardLoader, fixed_batches, open_training
from albert_data.train.model import Albert
from albert_data.train.state import Initial, choose_shape, select_weights, start_session
from albert_data.train.update import update

pytest.importorskip("safetensors", reason="the train extra is not installed")

TASKS = tuple(PAIR_TASKS)
CONFIG = dataclasses.replace(TINY, batch_tokens=1024)


@pytest.fixture(scope="module", autouse=True)
def small_model():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODEL_PRESETS, "tiny", SMALL)
        yield


@pytest.fixture(scope="module")
def trained(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with shards and a run of four steps for each sentence task, made when first asked for."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "in.txt").write_bytes(to_txt(make_documents(150, seed=1)))

    def make(task: str) -> Path:
        if not (folder / task).exists():
            with small_tasks():
                run_build(folder / "in.txt", folder / task / "shards", tokenizer, pairs=task, max_seq_len=64)
            loop.train(folder / task / "shards", folder / task / "run", CONFIG)
        return folder / task

    return make


def newest(folder: Path) -> Albert:
    return load_model(list_checkpoints(folder / "run")[-1])


def first_batch(folder: Path) -> Batch:
    """Some validation rows."""
    validation = open_training(folder / "shards").validation
    assert validation is not None
    return next(iter(fixed_batches(validation, num_rows=8, batch_tokens=512)))


@pytest.mark.parametrize("task", TASKS)
def test_a_run_reports_the_loss_of_its_sentence_task(task, trained, capsys):
    figures, orders = read_run(trained(task) / "run"), PAIR_TASKS[task].orders
    for line in figures.lines:
        if not orders:
            assert line["sop_loss"] is line["sop_accuracy"] is None
        else:
            assert abs(line["sop_loss"] - math.log(len(orders))) < 0.3  # four steps learn nothing
            assert 0 <= line["sop_accuracy"] <= 1
        assert line["mlm_loss"] > 0
    page, text, title = make_run_page(figures), describe_run(trained(task) / "run"), PAIR_TASKS[task].title
    for other in ("SOP", "NSP", "order"):
        assert (f"{other} loss" in page) == (f"{other} loss" in text) == (other == title)
    if orders:
        last = figures.lines[-1]
        assert figures.baseline("sop_loss") == last["sop_entropy"] <= math.log(len(orders))
        assert figures.baseline("sop_accuracy") == last["sop_majority"] >= 1 / len(orders)
        assert f"{last['sop_entropy']:.3f} (frequencies of the labels)" in page
        assert f"standard error {format_share(last['sop_error'], 1)}" in page
        assert format_share(last["sop_error"], 1) in text
    few = f"Validation rows of {figures.lines[-1]['num_documents']} document"
    assert few in page
    assert few in text
    assert max(map(len, text.split("\n")[1:])) <= 80  # the first line has the path


@pytest.mark.parametrize("task", TASKS)
def test_the_head_has_a_logit_for_each_label_and_every_parameter_a_gradient(task, trained):
    model, num_labels = newest(trained(task)), len(PAIR_TASKS[task].orders)
    output = model.train()(first_batch(trained(task)))
    assert (model.pooler is None) == (model.sop_head is None) == (num_labels == 0)
    if output.sop_logits_BK is None:
        assert (num_labels, float(output.sop_nats.detach())) == (0, 0.0)
    else:
        assert output.sop_logits_BK.shape[1] == num_labels
        assert float(output.sop_nats.detach()) > 0
    (output.mlm_nats + output.sop_nats).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_flops_count_the_head_that_is_there():
    shape = {"num_rows": 4, "row_len": 16, "num_masked": 8}
    counts = {t: training_flops(dataclasses.replace(SMALL, sentence_task=t), **shape) for t in TASKS}
    hidden, per_label = SMALL.hidden_size, 3 * 2 * 4 * SMALL.hidden_size
    assert counts["order3"] - counts["sop"] == per_label
    read = hidden**2 + hidden**2 + 2 * hidden * SMALL.ffn_size  # the pooler, and the last layer behind its attention
    assert counts["sop"] - counts["none"] == 2 * per_label + 3 * 2 * 4 * read
    assert counts["nsp"] == counts["sop"]


# ---- runs ----


def test_a_run_names_one_of_the_sentence_tasks():
    values = dataclasses.asdict(SMALL)
    named = "sentence_task is 'mlm'; allowed are sop, nsp, order3, none"
    check_refused(lambda: check_shape({**values, "sentence_task": "mlm"}), ConfigError, named)
    del values["sentence_task"]
    check_refused(lambda: check_shape(values), ConfigError, "the model's shape lacks sentence_task")


@pytest.mark.parametrize("task", ["nsp", "none"])
def test_a_run_is_resumed_with_its_head(task, trained, tmp_path):
    run = Path(shutil.copytree(trained(task) / "run", tmp_path / "run"))
    shutil.rmtree(list_checkpoints(run)[-1])
    path = loop.train(trained(task) / "shards", run, CONFIG, resume=True)
    assert path is not None
    weights, others = (load_checkpoint(folder)[0] for folder in (path, list_checkpoints(trained(task) / "run")[-1]))
    assert weights.keys() == others.keys()
    for name, value in weights.items():
        torch.testing.assert_close(value, others[name])


# ---- other weights ----


@pytest.mark.parametrize(
    ("before", "after"), [("sop", "nsp"), ("sop", "order3"), ("sop", "none"), ("none", "sop"), ("nsp", "nsp")]
)
def test_the_head_of_another_task_is_drawn_anew_and_all_else_is_taken(before, after):
    shape = dataclasses.replace(SMALL, vocab_size=40)
    initial, model = (Albert(dataclasses.replace(shape, sentence_task=task)) for task in (before, after))
    own = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(select_weights(initial, model))
    theirs = initial.state_dict()
    for name, value in model.state_dict().items():
        is_head = name.startswith("sop_head.") and before != after
        expected = own[name] if is_head or name not in theirs else theirs[name]
        assert torch.equal(value, expected), name


def test_a_run_may_begin_with_the_weights_of_another_task(trained, tmp_path, capsys):
    arguments = ["--preset", "tiny", "--steps", "1", "--device", "cpu", "-o", str(tmp_path / "run")]
    start = ["--init-from", str(trained("sop") / "run")]
    assert run_command(["train", str(trained("order3") / "shards"), *arguments, *start]) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "the shards are for the sentence task order3, the weights for sop: its head is drawn anew" in err


# ---- export ----


@pytest.mark.parametrize(
    ("task", "kind", "says"),
    [
        ("sop", "AlbertForPreTraining", "labels of `sop_logits`: 0 in order; 1 swapped: A followed B"),
        ("nsp", "AlbertForPreTraining", "labels of `sop_logits`: 0 in order; 1 random: B is of another document."),
        ("order3", "AlbertForMaskedLM", "has three labels and is not here"),
        ("none", "AlbertForMaskedLM", "There is no pooler"),
    ],
)
def test_export_writes_the_class_that_can_hold_the_head(task, kind, says, trained, tmp_path, capsys):
    transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")
    from safetensors.torch import load_file, save_file

    from albert_data.interop.huggingface import import_model

    out = tmp_path / "model"
    assert run_command(["export", str(trained(task) / "run"), "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert f"for transformers' {kind} and AutoTokenizer" in printed
    assert ("The head of the sentence task is not in it" in printed) == (task == "order3")
    card = (out / "README.md").read_text()
    assert says in card
    assert f": {PAIR_TASKS[task].title} loss, nats |" in card or not PAIR_TASKS[task].orders
    assert json.loads((out / "config.json").read_text())["architectures"] == [kind]
    theirs, loading = getattr(transformers, kind).from_pretrained(out, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    ours, model = import_model(out), newest(trained(task))
    assert ours.config.task.orders == (model.config.task.orders if kind == "AlbertForPreTraining" else ())
    assert ours.config.sentence_task == (task if kind == "AlbertForPreTraining" else "none")
    batch = first_batch(trained(task))
    inputs = {"input_ids": batch.input_ids_BT.long(), "token_type_ids": batch.segment_ids_BT.long()}
    with torch.no_grad():
        there = theirs.eval()(**inputs, attention_mask=batch.valid_BT.long())
        logits = there.prediction_logits if kind == "AlbertForPreTraining" else there.logits
        picked = logits.flatten(0, 1)[batch.masked_indices_N]
        for one in (model, ours):
            torch.testing.assert_close(one(batch).mlm_logits_NV, picked, atol=1e-4, rtol=0)
    if kind == "AlbertForPreTraining":  # two labels without their head are still an error
        path = out / "model.safetensors"
        save_file({k: v for k, v in load_file(path).items() if not k.startswith("sop_classifier")}, path)
        check_refused(lambda: import_model(out), CheckpointError, "the weights lack sop_classifier")


# ---- rows for other trainers ----


@pytest.mark.parametrize("task", TASKS)
def test_a_data_set_has_the_labels_of_the_task(task, trained):
    rows = ShardDataset(trained(task) / "shards")
    labels = {int(row["sentence_order_label"]) for row in rows} if PAIR_TASKS[task].orders else set()
    assert labels - {-100} == set(range(len(PAIR_TASKS[task].orders)))
    if not PAIR_TASKS[task].orders:
        assert set(rows[0]) == {"input_ids", "token_type_ids", "labels"}


def test_three_labels_are_refused_for_a_head_of_two(trained):
    transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")
    shards, names = trained("order3") / "shards", ("hidden_size", "num_hidden_layers", "num_attention_heads")
    config = transformers.BertConfig(**dict.fromkeys(names, 1), intermediate_size=1)
    config.vocab_size = open_training(shards).train.manifest.tokenizer.vocab_size
    named = "built with --pairs order3, which has 3 labels"
    check_refused(lambda: ShardDataset(shards, transformers.BertForPreTraining(config)), ConfigError, named)
    ShardDataset(shards, transformers.BertForMaskedLM(config))


def test_a_weight_for_a_sentence_task_that_there_is_not_is_refused(trained):
    manifest = open_training(trained("none") / "shards").train.manifest
    named = "sentence_weight is 0.1 & no sentence task (--pairs none"
    check_refused(lambda: choose_shape(TrainConfig(sentence_weight=0.1), manifest), ConfigError, named)
    choose_shape(TrainConfig(), manifest)


def test_the_weight_of_the_sentence_task_scales_its_part_of_the_gradient(toys, use_shards):
    use_shards(shards := toys.make_shards(40))
    gradients = {}
    for weight in (0.0, 1.0, 3.0):
        config = TrainConfig(preset="tiny", lr=1e-3, sentence_weight=weight, max_grad_norm=1e6)
        [batch] = next(ShardLoader(shards, batch_tokens=512).stream(torch.device("cpu")))
        shape, precision = choose_shape(config, shards.manifest), choose_precision("fp32", "cpu")
        session = start_session(config, shape, precision, ALONE, {}, None)
        update(session, [batch], lr=0.0, num_masked=batch.num_masked, num_pairs=batch.num_pairs)
        gradients[weight] = torch.cat([weights.grad.flatten() for weights in session.model.parameters()])
    task = gradients[1.0] - gradients[0.0]
    assert task.norm() > 0.01
    torch.testing.assert_close(gradients[3.0] - gradients[0.0], 3 * task, atol=1e-5, rtol=1e-3)


# ---- learning ----

PLANTED, SHARE = FIRST_ORDINARY, 0.3
VOCAB = 200


def plant(shards: FakeShards, *, seed: int) -> FakeShards:
    """Make each segment count upwards from a random piece, and plant a word in the later one of a part of the pairs."""
    examples, random = shards.examples, np.random.default_rng(seed)
    ids, labels = examples.input_ids.copy(), examples.masked_ids.copy()
    for row, (begin, end) in enumerate(zip(examples.offsets, examples.offsets[1:], strict=False)):
        second = begin + examples.segment_a_len[row] + 2
        spans = [(begin + 1, second - 1), (second, end - 1)]
        originals = ids[begin:end].copy()
        for first, last in spans:
            counted = random.integers(VOCAB) + np.arange(last - first)
            originals[first - begin : last - begin] = PLANTED + 1 + counted % (VOCAB - PLANTED - 1)
        masked = slice(*examples.mask_offsets[row : row + 2])
        places = examples.masked_positions[masked]
        labels[masked], originals[places] = originals[places], MASK
        ids[begin:end] = originals
        later = spans[int(examples.sop_label[row] == 0)]  # 0: in order
        free = [place for place in range(*later) if ids[place] != MASK]
        if examples.sop_label[row] != NO_LABEL and random.random() < SHARE and free:
            ids[random.choice(free)] = PLANTED
    return FakeShards(dataclasses.replace(examples, input_ids=ids, masked_ids=labels), shards.manifest)


@pytest.mark.slow
def test_a_word_in_the_later_segment_of_a_part_of_the_pairs_is_found(toys, use_shards, tmp_path):
    kind = {"vocab_size": VOCAB, "max_seq_len": 64}
    train, validation = (plant(toys.make_shards(num, **kind, seed=num), seed=num) for num in (20_000, 4000))
    use_shards(train, validation)
    recipe = dataclasses.replace(RECIPES["quick"]["mini"], preset="tiny", minutes=None, steps=1000, eval_rows=4000)
    torch.manual_seed(0)
    model = Albert(choose_shape(recipe, train.manifest))
    with torch.no_grad():
        for linear in (one for one in model.modules() if isinstance(one, torch.nn.Linear)):
            linear.weight *= 50 * model.config.hidden_size**-0.5  # those of the paper are for more hidden units
    initial = Initial(model=model, tokenizer_sha256=None, origin=tmp_path)
    loop.train(tmp_path / "out", tmp_path / "run", dataclasses.replace(recipe, device="cpu"), initial=initial)
    last = toys.read_metrics(tmp_path / "run")[-1]
    # Where the word is missing, a guess is right as often as the most frequent label.
    assert last["sop_accuracy"] > SHARE + (1 - SHARE) * last["sop_majority"] - 3 * last["sop_error"]
