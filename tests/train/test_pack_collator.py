"""Packs without masks become batches in which a model computes each row as if it were alone."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet
import pytest
import torch
from convert_fixtures import convert
from inspect_fixtures import draw_sentences, get_tokenizer, make_examples, write_folder
from refusals import check_refused, refused
from test_torch_dataset import IGNORED, PACK, SINGLES, make, make_model

from albert_data.errors import ConfigError
from albert_data.interop import PackCollator, ShardDataset

transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the huggingface extra is not installed")

MASK_PROB = 0.3


def make_masker(seed: int = 0):
    """The collator that most people mask with."""
    ours = get_tokenizer()
    names = {f"{name.removesuffix('_id')}_token": ours.pieces[i] for name, i in ours.specials.to_dict().items()}
    words = tokenizers.models.WordLevel({piece: i for i, piece in enumerate(ours.pieces)}, ours.pieces[ours.unk_id])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words), **names)
    return transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASK_PROB, seed=seed)


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    rows = make_examples(draw_sentences(30, 1), SINGLES, 99)
    return write_folder(tmp_path_factory.mktemp("packs") / "shards", {"train": [rows]}, SINGLES)


@pytest.fixture(scope="module")
def packs(shards, tmp_path_factory) -> list[dict[str, list[int]]]:
    out = tmp_path_factory.mktemp("packs") / "out"
    convert(shards, out, "parquet", pack=PACK, unmasked=True, split="train")
    return [pack for file in sorted((out / "data").iterdir()) for pack in pyarrow.parquet.read_table(file).to_pylist()]


def split_batch(batch, packs):
    """The ids and labels of each row of the packs, as the batch has them masked."""
    for line, pack in enumerate(packs):
        ends = [*pack["row_starts"][1:], len(pack["input_ids"])]
        for begin, end in zip(pack["row_starts"], ends, strict=True):
            yield batch["input_ids"][line, begin:end], batch["labels"][line, begin:end]


@pytest.mark.parametrize(("kind", "attention"), [("ModernBert", "sdpa"), ("ModernBert", "eager"), ("Bert", "sdpa")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_and_gradients_of_packs_are_those_of_single_rows(packs, kind, attention, dtype):
    model, some = make_model(kind, attention).to(dtype), packs[:4]
    batch = PackCollator(model, make_masker())(some)
    model(**batch).loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    rows = list(split_batch(batch, some))
    assert len(rows) >= 2 * len(some)
    num_labels = sum(int((labels != IGNORED).sum()) for _, labels in rows)
    loss = sum(
        torch.nn.functional.cross_entropy(model(input_ids=ids[None]).logits[0], labels, reduction="sum") / num_labels
        for ids, labels in rows
    )
    loss.backward()
    torch.testing.assert_close(model(**batch).loss, loss, rtol=0, atol=1e-5, check_dtype=False)  # theirs is float32
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=0, atol=1e-5)


def test_masks_are_new_in_each_batch_and_spare_the_special_pieces(packs):
    collator = PackCollator(make_model("ModernBert"), make_masker())
    batches = [collator(packs) for _ in range(2)]
    for batch in batches:
        labels, num_ordinary = batch["labels"], 0
        for line, pack in enumerate(packs):
            ids = torch.tensor(pack["input_ids"])
            original = torch.where(labels[line] == IGNORED, batch["input_ids"][line], labels[line])
            assert original[: len(ids)].equal(ids)
            assert (labels[line, : len(ids)][(ids == 2) | (ids == 3)] == IGNORED).all()
            assert (labels[line, len(ids) :] == IGNORED).all()
            num_ordinary += int(((ids != 2) & (ids != 3)).sum())
        assert (labels != IGNORED).sum() / num_ordinary == pytest.approx(MASK_PROB, abs=0.05)
    assert not batches[0]["labels"].equal(batches[1]["labels"])
    assert collator(packs[:1])["input_ids"].shape[1] % 8 == 0


def test_without_masks_the_batch_is_that_of_the_data_set(packs, shards, monkeypatch):
    def keep(rows):
        return {"input_ids": rows[0]["input_ids"][None], "labels": rows[0]["input_ids"][None]}

    model = make_model("Roberta")
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")
    found, data_set = PackCollator(model, keep)(packs[:3]), ShardDataset(shards, model, pack=PACK)
    wanted = data_set.collate(packs[:3])
    assert found.keys() - wanted.keys() == {"labels"}
    assert found["labels"].equal(wanted["input_ids"])
    for name, values in wanted.items():
        assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(values))


def test_workers_get_a_copy(packs):
    collator = pickle.loads(pickle.dumps(PackCollator(make_model("ModernBert"), make_masker())))
    assert collator(packs[:2])["labels"].shape[0] == 2


def test_a_trainer_learns_from_packs_without_masks(packs, tmp_path: Path):
    settings = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1}
    args = transformers.TrainingArguments(tmp_path, remove_unused_columns=False, max_steps=2, **settings)
    model = make_model("ModernBert")
    trainer = transformers.Trainer(model, args, train_dataset=packs, data_collator=PackCollator(model, make_masker()))
    trainer.train()
    assert all(0 < entry["loss"] < 100 for entry in trainer.state.log_history if "loss" in entry)


LONG = {"input_ids": [5] * 70, "row_starts": [0, 4]}


@refused(
    ({"row_starts": None}, ConfigError, "lacks row_starts & remove_unused_columns=False"),
    ({"labels": [1]}, ConfigError, "has labels & --unmasked"),
    ({"masked_ids": [1]}, ConfigError, "has masked_ids & --unmasked"),
    (LONG, ConfigError, "a row of 66 tokens & positions for 64 & --max-seq-len 64"),
)
def test_what_is_no_pack_for_the_model_is_refused(call, kind, named):
    pack = {name: value for name, value in ({"input_ids": [2, 5, 3], "row_starts": [0]} | call).items() if value}
    collator = PackCollator(make("ModernBertForMaskedLM"), SimpleNamespace)
    check_refused(lambda: collator([pack]), kind, named)


def test_a_model_that_would_let_rows_see_each_other_is_refused():
    with pytest.raises(ConfigError, match="can't pack rows.*flex_attention"):
        PackCollator(make_model("ModernBert", "flex_attention"), SimpleNamespace)
