"""Packs of `ShardDataset` have every token once, and models of transformers compute each row of them as if alone."""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet
import pytest
import torch
from convert_fixtures import convert
from inspect_fixtures import SMALL, draw_sentences, make_examples, write_folder, write_sentences
from torch.utils.data import DataLoader

from albert_data.errors import ConfigError
from albert_data.interop import ShardDataset
from albert_data.shards.reader import open_shards
from albert_data.train.data.remasking import Remasker

pytest.importorskip("safetensors", reason="the train extra is not installed")
transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")

IGNORED, PACK = -100, 50
SINGLES = dataclasses.replace(SMALL, pairs="none")
SIZES = {
    **{"vocab_size": 380, "max_position_embeddings": 40, "hidden_size": 32, "num_hidden_layers": 2},
    **{"num_attention_heads": 2, "intermediate_size": 64, "pad_token_id": 0},
}


def make_model(kind: str, attention: str = "sdpa", **settings: object):
    own = {
        "Albert": {"embedding_size": 16},
        # The first layer has full attention, the second sees four tokens to each side.
        "ModernBert": {"local_attention": 8, "global_attn_every_n_layers": 2}
        | dict.fromkeys(("bos_token_id", "cls_token_id"), 2)
        | dict.fromkeys(("eos_token_id", "sep_token_id"), 3),
        "Roberta": {"type_vocab_size": 1},
    }
    config = getattr(transformers, f"{kind}Config")(**SIZES, **own.get(kind, {}), **settings)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForMaskedLM")._from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():  # with weights from N(0, 0.02) attention is nearly uniform
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    parts = [make_examples(draw_sentences(30, seed) + write_sentences(30, seed), SINGLES, 99 * seed) for seed in (1, 2)]
    return write_folder(tmp_path_factory.mktemp("packs") / "shards", {"train": parts, "validation": parts[:1]}, SINGLES)


def split_pack(pack: dict[str, torch.Tensor]) -> list[tuple[list[int], list[int]]]:
    """The ids and labels of each row of a pack."""
    ends = [*pack["row_starts"].tolist(), len(pack["input_ids"])]
    return [
        (pack["input_ids"][begin:end].tolist(), pack["labels"][begin:end].tolist()) for begin, end in pairwise(ends)
    ]


def count_cells(folder: Path, epoch: int) -> Counter:
    """How often each token of text comes with each label, by plain Python."""
    shards, found = open_shards(folder), Counter()
    rows = shards.rows(range(len(shards)))
    if epoch:
        rows = Remasker(shards.manifest, shards.tokenizer, seed=0)(rows, torch.arange(len(shards)).numpy(), epoch)
    for row in range(len(shards)):
        tokens, masks = (slice(*offsets[row : row + 2]) for offsets in (rows.offsets, rows.mask_offsets))
        labels = dict(zip(rows.masked_positions[masks].tolist(), rows.masked_ids[masks].tolist(), strict=True))
        ids = rows.input_ids[tokens].tolist()
        found.update((ids[at], labels.get(at, IGNORED)) for at in range(1, len(ids) - 1))
    return found


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_packs_have_every_token_once_with_the_masks_of_the_epoch(folder, epoch, num_workers):
    rows = ShardDataset(folder, pack=PACK)
    rows.set_epoch(epoch)
    found: Counter = Counter()
    used = []
    for (pack,) in DataLoader(rows, batch_size=1, num_workers=num_workers, collate_fn=list, shuffle=True):
        assert pack["row_starts"].dtype == torch.int32
        used.append(len(pack["input_ids"]))
        for ids, labels in split_pack(pack):
            assert (ids[0], labels[0], ids[-1], labels[-1]) == (2, IGNORED, 3, IGNORED)
            found.update(zip(ids[1:-1], labels[1:-1], strict=True))
    assert found == count_cells(folder, epoch)
    assert max(used) <= PACK
    assert sum(used) > 0.93 * PACK * len(rows), "words of three tokens fill packs of 50 no better"


def test_a_copy_has_the_same_packs(folder):
    rows = ShardDataset(folder, pack=PACK)
    copied = pickle.loads(pickle.dumps(rows))
    assert len(copied) == len(rows)
    assert repr(copied) == repr(rows)
    assert f", {len(rows)} packs of {PACK} tokens)" in repr(rows)
    for name, values in rows[3].items():
        assert torch.equal(copied[3][name], values)


@pytest.mark.parametrize("kind", ["ModernBert", "Roberta"])
def test_a_model_with_flash_attention_gets_what_transformers_collator_makes(folder, kind, monkeypatch):
    model = make_model(kind)
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")
    rows = ShardDataset(folder, model, pack=PACK)
    packs = rows.__getitems__([0, 5, 2])
    features = [{"input_ids": ids, "labels": labels} for pack in packs for ids, labels in split_pack(pack)]
    first = 1 if kind == "Roberta" else 0  # of the positions that RoBERTa makes itself, with <pad> 0
    collator = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True, position_ids_start=first)
    wanted, found = collator(features, return_tensors="pt"), rows.collate(packs)
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        if name.startswith("max_length"):
            assert (type(found[name]), found[name]) == (int, values)
        else:
            assert found[name].dtype == values.dtype
            assert torch.equal(found[name], values)
    plain = ShardDataset(folder, pack=PACK)  # without a model the same, with positions from 0 on
    whole = plain.collate(plain.__getitems__([0, 5, 2]))
    assert torch.equal(whole["cu_seq_lens_q"], wanted["cu_seq_lens_q"])
    assert torch.equal(whole["position_ids"] + first, wanted["position_ids"])


@pytest.mark.parametrize("kind", ["ModernBert", "Roberta", "Bert", "Albert"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_row_in_a_pack_has_the_logits_that_it_has_alone(folder, kind, attention):
    model = make_model(kind, attention)
    rows = ShardDataset(folder, model, pack=PACK)
    packs = rows.__getitems__(range(4))
    batch = rows.collate(packs)
    assert batch["input_ids"].shape == (4, PACK)
    output = model(**batch)
    assert output.loss.isfinite()
    for line, pack in enumerate(packs):
        at = 0
        for ids, _ in split_pack(pack):
            alone = model(input_ids=torch.tensor([ids])).logits[0]
            torch.testing.assert_close(output.logits[line, at : at + len(ids)], alone, rtol=1e-4, atol=1e-4)
            at += len(ids)


@pytest.mark.parametrize("kind", ["ModernBert", "Bert"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_loss_of_a_row_has_no_gradient_by_the_tokens_of_another(folder, kind, attention):
    model = make_model(kind, attention)
    rows = ShardDataset(folder, model, pack=PACK)
    batch, embedded = rows.collate([rows[0], rows[1]]), []
    model.get_input_embeddings().register_forward_hook(lambda *found: embedded.append(found[2]))
    logits = model(**{**batch, "labels": None}).logits
    labels = batch["input_ids"]
    for line, pack in enumerate((rows[0], rows[1])):
        ends = [*pack["row_starts"].tolist(), len(pack["input_ids"])]
        assert len(ends) > 2, "a pack of several rows"
        for begin, end in pairwise(ends):
            loss = torch.nn.functional.cross_entropy(logits[line, begin:end], labels[line, begin:end])
            (gradient,) = torch.autograd.grad(loss, embedded, retain_graph=True)
            reached = gradient.abs().sum(-1)
            assert (reached[line, begin:end] > 0).all()
            reached[line, begin:end] = 0
            assert not reached.any(), "exactly 0 everywhere else"


@pytest.mark.parametrize("attention", ["sdpa", "flash_attention_2"])
@pytest.mark.parametrize("unmasked", [False, True])
def test_converted_packs_go_through_the_same_collator(folder, tmp_path, monkeypatch, attention, unmasked):
    convert(folder, tmp_path / "out", "parquet", pack=PACK, unmasked=unmasked)
    model = make_model("Roberta")
    monkeypatch.setattr(model.config, "_attn_implementation_internal", attention)
    rows = ShardDataset(folder, model, pack=PACK)
    (path,) = (tmp_path / "out" / "data").glob("train-*")
    packs = pyarrow.parquet.read_table(path).to_pylist()
    assert len(packs) == len(rows)
    found, wanted = rows.collate(packs[2:5]), rows.collate(rows.__getitems__([2, 3, 4]))
    assert found.keys() == wanted.keys() - ({"labels"} if unmasked else set())
    for name in found.keys() - ({"input_ids"} if unmasked else set()):
        assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(wanted[name]))
    with pytest.raises(ConfigError, match="are collated by ShardDataset"):
        ShardDataset(folder).collate(packs[:2])


def test_a_trainer_learns_from_packs(folder, tmp_path):
    model = make_model("ModernBert")
    rows = ShardDataset(folder, model, pack=PACK)
    settings = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1}
    args = transformers.TrainingArguments(tmp_path, num_train_epochs=2, per_device_train_batch_size=4, **settings)
    validation = ShardDataset(folder, model, split="validation", pack=PACK)
    args.prediction_loss_only = True
    trainer = transformers.Trainer(model, args, train_dataset=rows, eval_dataset=validation, data_collator=rows.collate)
    losses = [entry["loss"] for entry in trainer.train() and trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2 * -(-len(rows) // 4)
    assert all(0 < loss < 100 for loss in losses)
    assert trainer.evaluate()["eval_loss"] > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: make_model("ModernBert", "flex_attention"),
            "computes attention by flex_attention; make it with attn_imp",
        ),
        (lambda: transformers.FNetForMaskedLM(transformers.FNetConfig(**SIZES)), "does not take both position_ids and"),
    ],
)
def test_a_model_that_would_let_rows_see_each_other_is_refused(folder, make, message):
    with pytest.raises(ConfigError, match=f"can't pack rows: the .* {message}"):
        ShardDataset(folder, make(), pack=PACK)


def test_a_length_below_the_longest_row_and_a_sentence_task_are_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match="pack is 31, but rows of .* have up to 32 tokens; give 32 or more"):
        ShardDataset(folder, pack=31)
    pairs = write_folder(tmp_path / "sop", {"train": [make_examples(write_sentences(3, 1), SMALL)]})
    with pytest.raises(ConfigError, match="built with --pairs sop, whose rows have a label each; leave out pack"):
        ShardDataset(pairs, pack=64)
