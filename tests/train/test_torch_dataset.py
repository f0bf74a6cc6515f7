"""A data set gives models of transformers the rows of the shards, each kind of model its inputs, labels and masks.

Packs of it have every token once, and the models compute each row of them as if alone.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from convert_fixtures import convert
from inspect_fixtures import SMALL, draw_sentences, get_tokenizer, make_examples, write_folder, write_sentences
from refusals import check_refused, refused
from test_train_packing import stored_texts
from test_train_remasking import loader_at, read_epoch
from torch.utils.data import DataLoader
from toy_rows import mean_loss

from albert_data.errors import ConfigError, ShardError
from albert_data.interop import ShardDataset
from albert_data.shards.reader import open_shards
from albert_data.train.batch import collate

pytest.importorskip("safetensors", reason="the train extra is not installed")
transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")
huggingface = pytest.importorskip("albert_data.interop.huggingface")

IGNORED = -100
SIZES = {
    **{"vocab_size": 380, "max_position_embeddings": 64, "hidden_size": 32, "num_hidden_layers": 2},
    **{"num_attention_heads": 2, "intermediate_size": 64, "pad_token_id": 0},
}
FNET_SIZES = {name: SIZES[name] for name in SIZES if name != "num_attention_heads"}
OWN = {
    "Albert": {"embedding_size": 16},
    "Roberta": {"type_vocab_size": 1},
    # The first layer has full attention, the second sees four tokens to each side.
    "ModernBert": {"local_attention": 8, "global_attn_every_n_layers": 2}
    | dict.fromkeys(("bos_token_id", "cls_token_id"), 2)
    | dict.fromkeys(("eos_token_id", "sep_token_id"), 3),
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
}


def make(name: str, attention: str = "sdpa", **settings: object):
    """A small model of this class of transformers."""
    kind = name.partition("For")[0].removesuffix("Model")
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **OWN.get(kind, {}), **settings})
    return getattr(transformers, name)._from_config(config, attn_implementation=attention)


# Each kind of model: whether it has token types, and the name of its label of the pair.
MODELS = {
    "AlbertForPreTraining": (True, "sentence_order_label"),
    "BertForPreTraining": (True, "next_sentence_label"),
    "AlbertForMaskedLM": (True, None),
    "BertForMaskedLM": (True, None),
    "RobertaForMaskedLM": (False, None),
    "ModernBertForMaskedLM": (False, None),
    "DistilBertForMaskedLM": (False, None),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Some 60 training rows, a third of them without a pair, in two record batches, and some validation rows."""
    one = [get_tokenizer().encode([text])[0].tolist() for text in ("the river", "people walked unhappily . water the")]
    parts = []
    for seed in (1, 2):
        documents = [part for document in write_sentences(12, seed) for part in (document, [one[len(document[0]) % 2]])]
        parts.append(make_examples(documents, SMALL, 100 * seed))
    validation = [make_examples(write_sentences(5, 3), SMALL, 300)]
    return write_folder(tmp_path_factory.mktemp("dataset") / "shards", {"train": parts, "validation": validation})


def describe_row(row, has_types: bool, sentence_label: str | None) -> dict[str, list[int] | int]:
    """The reference: a row of the shards in the terms of a model, by plain Python."""
    ids = row.input_ids.tolist()
    labels = [IGNORED] * len(ids)
    for position, original in zip(row.masked_positions.tolist(), row.masked_ids.tolist(), strict=True):
        labels[position] = original
    found: dict[str, list[int] | int] = {"input_ids": ids, "labels": labels}
    if has_types:
        first_sep = 1 + row.segment_a_len
        found["token_type_ids"] = [int(position > first_sep) for position in range(len(ids))]
    if sentence_label is not None:
        found[sentence_label] = {0: 0, 1: 1, -1: IGNORED}[row.sop_label]
    return found


def pad(rows: list[dict[str, list[int] | int]], has_mask: bool = True) -> dict[str, list]:
    """The reference of `collate`."""
    longest = max(len(row["input_ids"]) for row in rows)
    padded = next(size for size in range(8, 1000, 8) if size >= longest)
    fill = {"input_ids": 0, "labels": IGNORED, "token_type_ids": 0}
    batch = {
        name: [row[name] + [fill[name]] * (padded - len(row[name])) if name in fill else row[name] for row in rows]
        for name in rows[0]
    }
    if has_mask:
        batch["attention_mask"] = [[1] * len(row["input_ids"]) + [0] * (padded - len(row["input_ids"])) for row in rows]
    return batch


def to_lists(batch: dict[str, torch.Tensor]) -> dict[str, list]:
    assert {values.dtype for values in batch.values()} == {torch.int64}
    return {name: values.tolist() for name, values in batch.items()}


# ---- rows ----


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_gets_the_rows_of_the_shards_and_a_loss(folder, name):
    inputs, model, shards = MODELS[name], make(name), open_shards(folder)
    rows = ShardDataset(folder, model)
    assert len(rows) == len(shards)
    numbers = range(0, len(shards), 7)
    for number in numbers:
        assert to_lists(rows[number]) == describe_row(shards[number], *inputs)
    batch = rows.collate(rows.__getitems__(numbers))
    assert to_lists(batch) == pad([describe_row(shards[number], *inputs) for number in numbers])
    assert model(**batch).loss.isfinite()


def test_a_data_loader_with_workers_gives_each_row_once(folder):
    rows, shards = ShardDataset(folder), open_shards(folder)
    loader = DataLoader(rows, batch_size=16, num_workers=2, collate_fn=rows.collate)
    wanted = [describe_row(row, True, "sentence_order_label") for row in shards]
    batches = [wanted[at : at + 16] for at in range(0, len(wanted), 16)]
    assert [to_lists(batch) for batch in loader] == [pad(batch) for batch in batches]


def test_transformers_finds_the_lengths_to_group_rows_by(folder):
    sampler = transformers.trainer_pt_utils.LengthGroupedSampler(8, dataset=ShardDataset(folder))
    assert sampler.lengths == open_shards(folder).lengths.tolist()


def test_a_model_without_an_attention_mask_gets_none(folder):
    model = transformers.FNetForPreTraining(transformers.FNetConfig(**FNET_SIZES))
    rows = ShardDataset(folder, model)
    batch = rows.collate([rows[0], rows[-1]])
    assert set(batch) == {"input_ids", "labels", "token_type_ids", "next_sentence_label"}
    assert model(**batch).loss.isfinite()


def test_padding_ends_at_the_last_position_of_the_model(folder):
    rows = ShardDataset(folder, make("BertForPreTraining", max_position_embeddings=36))
    long = {name: torch.ones(33, dtype=torch.int64) for name in ("input_ids", "token_type_ids", "labels")}
    assert rows.collate([{**long, "next_sentence_label": torch.tensor(1)}])["input_ids"].shape == (1, 36)


@torch.no_grad()
def test_the_loss_in_transformers_is_that_of_our_own_model(folder, tmp_path):
    theirs = make("AlbertForPreTraining").eval()
    theirs.save_pretrained(tmp_path)
    ours, shards = huggingface.import_model(tmp_path), open_shards(folder)
    for numbers in (np.arange(20), np.arange(30, len(shards))):
        examples = shards.rows(numbers)
        assert {-1, 0, 1} == set(examples.sop_label.tolist())
        rows = ShardDataset(folder, theirs)
        batch = rows.collate(rows.__getitems__(numbers))
        same = collate(examples, pad_id=0)
        torch.testing.assert_close(theirs(**batch).loss, mean_loss(ours(same), same), atol=1e-5, rtol=0)


# ---- batches that lack a label ----


@torch.no_grad()
def test_a_batch_without_a_pair_gets_one_row_with_a_pair_so_that_its_loss_is_a_number(folder):
    model = make("AlbertForPreTraining").eval()
    rows = ShardDataset(folder, model)
    singles = [at for at, row in enumerate(rows) if row["sentence_order_label"] < 0 and (row["labels"] >= 0).any()]
    seen = set()
    for number in singles[:8]:
        batch = rows.collate([rows[number]])
        assert len(batch["input_ids"]) == 2
        assert batch["sentence_order_label"].tolist()[0] == IGNORED
        assert batch["sentence_order_label"].tolist()[1] in (0, 1)
        assert (batch["labels"][1] == IGNORED).all(), "its masks do not count"
        length = len(rows[number]["labels"])
        assert batch["labels"][0, :length].equal(rows[number]["labels"])
        assert model(**batch).loss.isfinite()
        assert to_lists(rows.collate([rows[number]])) == to_lists(batch)
        seen.add(str(batch["input_ids"][1].tolist()))
    assert len(seen) > 1, "not always the same row"


@torch.no_grad()
def test_a_batch_without_masks_gets_one_row_with_masks(folder):
    model = make("DistilBertForMaskedLM").eval()
    rows = ShardDataset(folder, model)
    batch = rows.collate([{**rows[0], "labels": torch.full_like(rows[0]["labels"], IGNORED)}])
    assert len(batch["input_ids"]) == 2
    assert (batch["labels"][1] != IGNORED).any()
    assert model(**batch).loss.isfinite()


def test_shards_without_any_pair_are_refused_for_a_model_that_learns_from_pairs(tmp_path):
    one = [get_tokenizer().encode(["the river people water"])[0].tolist()]
    write_folder(tmp_path / "shards", {"train": [make_examples([one] * 5, SMALL)]})
    with pytest.raises(ConfigError, match=r"no row .* has a pair.*AlbertForMaskedLM"):
        ShardDataset(tmp_path / "shards", make("AlbertForPreTraining"))
    assert len(ShardDataset(tmp_path / "shards", make("AlbertForMaskedLM"))) == 5


# ---- epochs ----


def read_masks(rows) -> dict[int, tuple[list[int], dict[int, int]]]:
    """The ids and the masks (position: original) of each row."""
    masks = [{at: label for at, label in enumerate(row["labels"].tolist()) if label >= 0} for row in rows]
    return {number: (row["input_ids"].tolist(), masks[number]) for number, row in enumerate(rows)}


def read_loader_epoch(folder: Path, epoch: int, seed: int) -> dict[int, tuple[list[int], dict[int, int]]]:
    """The same of an epoch, by our own loader."""
    return read_epoch(loader_at(open_shards(folder), epoch, batch_tokens=512, seed=seed))


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_the_masks_of_an_epoch_are_those_of_our_own_training(folder, epoch):
    rows = ShardDataset(folder, seed=7)
    rows.set_epoch(epoch)
    assert read_masks(rows) == read_loader_epoch(folder, epoch, seed=7)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])  # it loads torch
def test_an_epoch_reaches_persistent_workers(folder, method):
    rows = ShardDataset(folder)
    kind = {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": method}
    loader = DataLoader(rows, batch_size=16, collate_fn=list, **kind)
    for epoch in (0, 1, 2):
        rows.set_epoch(epoch)
        assert read_masks([row for batch in loader for row in batch]) == read_loader_epoch(folder, epoch, seed=0)


def test_evaluation_has_the_stored_masks_in_every_epoch(folder):
    for settings in ({"split": "validation"}, {"remask": False}):
        rows = ShardDataset(folder, **settings)
        before = read_masks(rows)
        rows.set_epoch(3)
        assert read_masks(rows) == before


def test_the_share_of_masks_changes_from_the_first_epoch_to_the_last(folder):
    rows = ShardDataset(folder, mask_prob=[0.4, 0.1], epochs=4)
    for epoch, mask_prob in enumerate((0.4, 0.3, 0.2, 0.1, 0.1)):
        rows.set_epoch(epoch)
        same = ShardDataset(folder, mask_prob=mask_prob)
        same.set_epoch(epoch)
        assert read_masks(rows) == read_masks(same)


@refused(
    ({"mask_prob": 0.9}, ConfigError, "mask_prob is 0.9 & 0.01 to 0.5"),
    ({"mask_prob": (0.3, 0.05), "epochs": 1}, ConfigError, "epochs is 1 & 2 or more"),
    ({"mask_prob": 0.3, "remask": False}, ConfigError, "keeps the stored masks"),
    ({"mask_prob": [0.3, 0.2, 0.1], "epochs": 3}, ConfigError, "give one share & the first and the last epoch"),
    ({"split": "test"}, ShardError, "no split 'test'"),
    ({"pack": 31}, ConfigError, "pack is 31 & up to 32 tokens & 32 or more"),
    ({"pack": 64}, ConfigError, "--pairs sop & a label each & leave out pack"),
)
def test_a_wrong_setting_is_named(folder, singles, call, kind, named):
    check_refused(lambda: ShardDataset(singles if call == {"pack": 31} else folder, **call), kind, named)


@pytest.mark.parametrize(
    ("name", "unmasked"), [("AlbertForPreTraining", True), ("BertForMaskedLM", False), ("ModernBertForMaskedLM", True)]
)
def test_converted_rows_go_through_collate(folder, name, unmasked, tmp_path):
    model, shards = make(name), ShardDataset(folder, remask=False)
    rows = ShardDataset(folder, model, remask=False)
    convert(folder, tmp_path / "out", "parquet", unmasked=unmasked, split="train")
    files = sorted((tmp_path / "out" / "data").iterdir())
    converted = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
    assert len(converted) == len(shards)
    for numbers in ([0, 1, 2, 3], list(range(5, 25))):
        wanted, found = rows.collate(rows.__getitems__(numbers)), rows.collate([converted[i] for i in numbers])
        if unmasked:
            labels = wanted.pop("labels")
            wanted["input_ids"] = torch.where(labels == IGNORED, wanted["input_ids"], labels)
        assert to_lists(found) == to_lists(wanted)


@pytest.mark.parametrize("copy_it", [copy.deepcopy, lambda rows: pickle.loads(pickle.dumps(rows))])
def test_a_copy_has_the_rows_and_an_epoch_of_its_own(folder, copy_it):
    rows = ShardDataset(folder, make("RobertaForMaskedLM"), seed=2)
    rows.set_epoch(1)
    copied = copy_it(rows)
    assert read_masks(copied) == read_masks(rows)
    rows.set_epoch(2)
    assert read_masks(copied) == read_loader_epoch(folder, 1, seed=2)
    assert copied._epoch.is_shared()


def test_several_processes_without_set_epoch_are_told_what_to_do(folder, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    rows = ShardDataset(folder)
    with pytest.raises(ConfigError, match="use_seedable_sampler"):
        rows[0]
    rows.set_epoch(0)
    assert len(rows[0]) == 4
    assert len(ShardDataset(folder, remask=False)[0]) == 4


# ---- what can't be done, in one line ----


@refused(
    (lambda: make("AlbertForSequenceClassification"), ConfigError, "does not learn from masked rows"),
    (lambda: transformers.ElectraForPreTraining(transformers.ElectraConfig(**SIZES)), ConfigError, "does not learn"),
    (
        lambda: make("BertForPreTraining", vocab_size=100),
        ConfigError,
        "has 100 pieces & tokenizer has 380 & vocab_size=380",
    ),
    (lambda: make("RobertaForMaskedLM", pad_token_id=1), ConfigError, "pads with id 1 & <pad> is 0 & pad_token_id=0"),
    (
        lambda: make("BertForPreTraining", max_position_embeddings=24),
        ConfigError,
        "positions for 24 tokens & up to 32 & --max-seq-len 24",
    ),
    (lambda: make("RobertaForMaskedLM", max_position_embeddings=32), ConfigError, "positions for 31 tokens & up to 32"),
)
def test_a_model_that_does_not_fit_is_refused(folder, call, kind, named):
    model = call()
    check_refused(lambda: ShardDataset(folder, model), kind, named)


def test_a_row_or_a_folder_that_is_not_there_is_an_error(folder, tmp_path):
    with pytest.raises(ShardError):
        ShardDataset(tmp_path)
    rows = ShardDataset(folder)
    with pytest.raises(IndexError, match="row 1000"):
        rows[1000]
    assert to_lists(rows[-1]) == to_lists(rows[len(rows) - 1])
    with pytest.raises(ConfigError, match="epoch"):
        rows.set_epoch(-1)
    empty = write_folder(tmp_path / "empty", {"validation": [make_examples(write_sentences(2, 3), SMALL)]})
    with pytest.raises(ShardError, match="train has no rows"):
        ShardDataset(empty)


def test_the_data_set_needs_no_transformers_the_package_no_torch_and_training_no_multiprocess():
    code = (
        "import sys, albert_data.interop\n"
        "sys.modules['multiprocess'] = None\n"
        "assert 'torch' not in sys.modules\n"
        "albert_data.interop.ShardDataset\n"
        "import albert_data.train.loop\n"
        "assert 'torch' in sys.modules and 'transformers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- packs ----

PACK = 50
SINGLES = dataclasses.replace(SMALL, pairs="none")


def make_model(kind: str, attention: str = "sdpa"):
    torch.manual_seed(0)
    model = make(f"{kind}ForMaskedLM", attention, max_position_embeddings=40).eval()
    with torch.no_grad():  # with weights from N(0, 0.02) attention is nearly uniform
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.fixture(scope="module")
def singles(tmp_path_factory) -> Path:
    parts = [make_examples(draw_sentences(30, seed) + write_sentences(30, seed), SINGLES, 99 * seed) for seed in (1, 2)]
    return write_folder(tmp_path_factory.mktemp("packs") / "shards", {"train": parts, "validation": parts[:1]}, SINGLES)


def split_pack(pack: dict[str, torch.Tensor]) -> list[tuple[list[int], list[int]]]:
    """The ids and labels of each row of a pack."""
    ends = [*pack["row_starts"].tolist(), len(pack["input_ids"])]
    return [
        (pack["input_ids"][begin:end].tolist(), pack["labels"][begin:end].tolist()) for begin, end in pairwise(ends)
    ]


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_packs_have_every_token_once_with_the_masks_of_the_epoch(singles, epoch, num_workers):
    rows = ShardDataset(singles, pack=PACK)
    rows.set_epoch(epoch)
    found: Counter = Counter()
    used = []
    for (pack,) in DataLoader(rows, batch_size=1, num_workers=num_workers, collate_fn=list, shuffle=True):
        assert pack["row_starts"].dtype == torch.int32
        used.append(len(pack["input_ids"]))
        for ids, labels in split_pack(pack):
            assert (ids[0], labels[0], ids[-1], labels[-1]) == (2, IGNORED, 3, IGNORED)
            found.update(zip(ids[1:-1], labels[1:-1], strict=True))
    wanted: Counter = Counter()
    for (_, token, original), count in stored_texts(open_shards(singles), epoch, seed=0).items():
        wanted[token, IGNORED if original == -1 else original] += count
    assert found == wanted
    assert max(used) <= PACK
    assert f", {len(rows)} packs of {PACK} tokens)" in repr(rows)
    assert sum(used) > 0.93 * PACK * len(rows), "words of three tokens fill packs of 50 no better"


@pytest.mark.parametrize("kind", ["ModernBert", "Roberta"])
def test_a_model_with_flash_attention_gets_what_transformers_collator_makes(singles, kind, monkeypatch):
    model = make_model(kind)
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")
    rows = ShardDataset(singles, model, pack=PACK)
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
    plain = ShardDataset(singles, pack=PACK)  # without a model the same, with positions from 0 on
    whole = plain.collate(plain.__getitems__([0, 5, 2]))
    assert torch.equal(whole["cu_seq_lens_q"], wanted["cu_seq_lens_q"])
    assert torch.equal(whole["position_ids"] + first, wanted["position_ids"])


@pytest.mark.parametrize(
    ("kind", "attention"),
    [(kind, attention) for kind in ("ModernBert", "Roberta", "Bert", "Albert") for attention in ("sdpa", "eager")],
)
def test_a_row_in_a_pack_has_the_logits_that_it_has_alone(singles, kind, attention):
    model = make_model(kind, attention)
    rows = ShardDataset(singles, model, pack=PACK)
    packs = rows.__getitems__(range(4))
    batch = rows.collate(packs)
    assert batch["input_ids"].shape == (4, PACK)
    embedded = []
    model.get_input_embeddings().register_forward_hook(lambda *found: embedded.append(found[2]))
    output = model(**batch)
    assert output.loss.isfinite()
    inputs = embedded[:1]
    for line, pack in enumerate(packs):
        assert len(pack["row_starts"]) > 1, "a pack of several rows"
        at = 0
        for ids, _ in split_pack(pack):
            here = (line, slice(at, at := at + len(ids)))
            alone = model(input_ids=torch.tensor([ids])).logits[0]
            torch.testing.assert_close(output.logits[here], alone, rtol=1e-4, atol=1e-4)
            loss = torch.nn.functional.cross_entropy(output.logits[here], torch.tensor(ids))
            (gradient,) = torch.autograd.grad(loss, inputs, retain_graph=True)
            reached = gradient.abs().sum(-1)
            assert (reached[here] > 0).all()
            reached[here] = 0
            assert not reached.any(), "no gradient by the tokens of another row: exactly 0"


@pytest.mark.parametrize("attention", ["sdpa", "flash_attention_2"])
@pytest.mark.parametrize("unmasked", [False, True])
def test_converted_packs_go_through_the_same_collator(singles, tmp_path, monkeypatch, attention, unmasked):
    convert(singles, tmp_path / "out", "parquet", pack=PACK, unmasked=unmasked)
    model = make_model("Roberta")
    monkeypatch.setattr(model.config, "_attn_implementation_internal", attention)
    rows = ShardDataset(singles, model, pack=PACK)
    (path,) = (tmp_path / "out" / "data").glob("train-*")
    packs = pyarrow.parquet.read_table(path).to_pylist()
    assert len(packs) == len(rows)
    found, wanted = rows.collate(packs[2:5]), rows.collate(rows.__getitems__([2, 3, 4]))
    assert found.keys() == wanted.keys() - ({"labels"} if unmasked else set())
    for name in found.keys() - ({"input_ids"} if unmasked else set()):
        assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(wanted[name]))
    with pytest.raises(ConfigError, match="are collated by ShardDataset"):
        ShardDataset(singles).collate(packs[:2])


def test_a_trainer_learns_from_packs(singles, tmp_path):
    model = make_model("ModernBert")
    rows = ShardDataset(singles, model, pack=PACK)
    settings = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1}
    args = transformers.TrainingArguments(tmp_path, num_train_epochs=2, per_device_train_batch_size=4, **settings)
    validation = ShardDataset(singles, model, split="validation", pack=PACK)
    args.prediction_loss_only = True
    trainer = transformers.Trainer(model, args, train_dataset=rows, eval_dataset=validation, data_collator=rows.collate)
    losses = [entry["loss"] for entry in trainer.train() and trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2 * -(-len(rows) // 4)
    assert all(0 < loss < 100 for loss in losses)
    assert trainer.evaluate()["eval_loss"] > 0


@refused(
    (lambda: make_model("ModernBert", "flex_attention"), ConfigError, "can't pack rows & flex_attention & attn_imp"),
    (
        lambda: transformers.FNetForMaskedLM(transformers.FNetConfig(**FNET_SIZES)),
        ConfigError,
        "can't pack rows & does not take both position_ids and",
    ),
)
def test_a_model_that_would_let_rows_see_each_other_is_refused(singles, call, kind, named):
    model = call()
    check_refused(lambda: ShardDataset(singles, model, pack=PACK), kind, named)
