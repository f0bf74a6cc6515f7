"""What the tests of inspect and verify share: a tokenizer with byte pieces, and shard folders to damage."""

from __future__ import annotations

import copy
import io
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc
import sentencepiece
from hypothesis import strategies as st
from shard_fixtures import NO_TOTALS, change_manifest, describe_again, describe_folder, hash_splits, seal
from toy_documents import as_documents

from albert_data.config import BuildConfig, ExampleConfig
from albert_data.data import Examples
from albert_data.examples.masks import mask_pairs
from albert_data.examples.pairs import make_pairs
from albert_data.examples.spans import span_shares
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS
from albert_data.shards.schema import from_record_batch, shard_schema, write_shard
from albert_data.storage.files import write_json
from albert_data.tokenizer.model import Tokenizer

TRAIN, VALIDATION = "train/shard-00000.arrow", "validation/shard-00000.arrow"
SMALL = ExampleConfig(max_seq_len=32, seed=3)
SCHEMA = shard_schema(np.uint16)
WORDS = ["the", "river", "mountain", "talking", "walked", "quickly", "people", "water", "unhappily"]
WORDS += ["我们", "学习", "语言", "=", "{", "}", "[MASK:", "]", "\\", "<-", "."]


@cache
def get_tokenizer() -> Tokenizer:
    """<pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4, then the 256 bytes, then pieces of WORDS."""
    rng, model = random.Random(0), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(" ".join(rng.choices(WORDS, k=8)) for _ in range(500)),
        model_writer=model,
        model_type="bpe",
        vocab_size=380,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        num_threads=1,
        minloglevel=2,
    )
    return Tokenizer(model.getvalue(), "the tests' tokenizer")


FIRST_TEXT_ID = 5
Sentences = list[list[int]]


def text_documents() -> st.SearchStrategy[list[Sentences]]:
    """Documents of sentences of any piece of text, bytes included."""
    piece = st.integers(FIRST_TEXT_ID, get_tokenizer().vocab_size - 1) | st.just(1)
    return st.lists(st.lists(st.lists(piece, min_size=1, max_size=25), min_size=1, max_size=6), max_size=8)


def configs() -> st.SearchStrategy[ExampleConfig]:
    sizes = {"max_seq_len": st.integers(8, 48), "mask_prob": st.sampled_from((0.15, 0.4)), "seed": st.integers(0, 1000)}
    ngrams = st.builds(ExampleConfig, ngram=st.integers(1, 4), whole_word=st.booleans(), **sizes)
    return ngrams | st.builds(ExampleConfig, masking=st.sampled_from(("span", "word", "token")), **sizes)


def write_sentences(count: int, seed: int) -> list[Sentences]:
    """Documents of four sentences of WORDS each."""
    rng, tokenizer = random.Random(seed), get_tokenizer()
    sentences = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(4 * count)]
    ids, offsets = tokenizer.encode(sentences)
    lists = [ids[begin:end].tolist() for begin, end in zip(offsets, offsets[1:], strict=False)]
    return [lists[i : i + 4] for i in range(0, len(lists), 4)]


def draw_sentences(count: int, seed: int) -> list[Sentences]:
    """Documents of four sentences of any pieces of text, so that most words are of several."""
    rng, last = random.Random(seed), get_tokenizer().vocab_size - 1
    return [[[rng.randint(FIRST_TEXT_ID, last) for _ in range(9)] for _ in range(4)] for _ in range(count)]


def make_examples(documents: Sequence[Sentences], config: ExampleConfig, first_key: int = 0) -> Examples:
    """Masked rows of documents whose keys count up from `first_key`."""
    tokenizer = get_tokenizer()
    made = as_documents(list(enumerate(documents, first_key)), tokenizer.id_dtype)
    words = tokenizer.word_rule(config)
    pairs = make_pairs(made, tokenizer.specials, words, config, 0)
    return mask_pairs(pairs, tokenizer.specials, words, tokenizer.ordinary_ids, config, 0)


def write_folder(folder: Path, splits: Mapping[str, Sequence[Examples]], config: ExampleConfig = SMALL) -> Path:
    """A finished build: one shard a split, one record batch for each of its parts."""
    tokenizer = get_tokenizer()
    (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer" / "spiece.model").write_bytes(tokenizer.model)
    names = {split: [f"{split}/shard-00000.arrow"] if splits.get(split) else [] for split in SPLITS}
    receipts = {}
    for split in filter(names.get, SPLITS):
        (folder / split).mkdir(exist_ok=True)
        receipts[split] = write_shard(folder / names[split][0], splits[split], SCHEMA, "none")
    manifest = describe_folder(folder, names, tokenizer.vocab_size)
    for split, receipt in receipts.items():
        for described in (manifest["splits"][split], *manifest["splits"][split]["shards"]):
            described.update({total: getattr(receipt, total) for total in NO_TOTALS})
    manifest["config"] = manifest["plan"]["config"] = BuildConfig(examples=config).to_flat_dict()
    manifest["ngram_shares"] = span_shares(config.longest_span, config.masking).tolist()
    manifest["tokenizer"]["sha256"] = manifest["plan"]["tokenizer"]["sha256"] = tokenizer.sha256
    manifest["counts"].update(text_bytes=1000, tokens=1_234_567)
    write_json(folder / MANIFEST_NAME, seal(manifest))
    return folder


@cache
def _make_small() -> TemporaryDirectory[str]:
    one_word = [get_tokenizer().encode(["river"])[0].tolist()]
    train = [make_examples([*write_sentences(12, seed), one_word], SMALL, 100 * seed) for seed in (1, 2)]
    made = TemporaryDirectory()  # until the tests end
    write_folder(Path(made.name), {"train": train, "validation": [make_examples(write_sentences(5, 3), SMALL, 300)]})
    return made


def write_small(folder: Path) -> Path:
    """A sound build of some 60 rows, in two record batches, and some 12 for validation; two have no pair."""
    return Path(shutil.copytree(_make_small().name, folder, copy_function=shutil.copy, dirs_exist_ok=True))


def read_part(path: Path, part: int = 0) -> Examples:
    """One record batch of a shard, its arrays free to change."""
    return read_parts(path)[part]


def read_parts(path: Path) -> list[Examples]:
    with pyarrow.ipc.open_file(path) as reader:
        return [copy.deepcopy(from_record_batch(reader.get_batch(i))) for i in range(reader.num_record_batches)]


def edit_manifest(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest so that it does not contradict itself."""

    def change(manifest: dict[str, Any]) -> None:
        edit(manifest)
        with suppress(LookupError, TypeError, AttributeError):  # what was edited is no manifest any more
            manifest["plan"]["config"] = manifest["config"]
            manifest["digest"] = hash_splits(manifest["splits"])

    change_manifest(folder, change)


Value = int | slice | Callable[[Examples], Any]


def put(column: str, at: Value, value: Value) -> Callable[[Examples], None]:
    """An edit that puts a value into a column; both it and its place may depend on the rows."""

    def edit(rows: Examples) -> None:
        place, what = (one(rows) if callable(one) else one for one in (at, value))
        getattr(rows, column)[place] = what

    return edit


def edit_rows(folder: Path, edit: Callable[[Examples], object], name: str = TRAIN) -> None:
    """Change the first record batch of a shard in place, and its hash, size and labels in the manifest."""
    parts = read_parts(folder / name)
    edit(parts[0])
    receipt = write_shard(folder / name, parts, SCHEMA, "none")
    describe_again(folder)

    def count_labels(manifest: dict[str, Any]) -> None:
        split = manifest["splits"][name.split("/")[0]]
        for totals in (split, *split["shards"]):
            totals["num_unpaired"] = receipt.num_unpaired

    change_manifest(folder, count_labels)
