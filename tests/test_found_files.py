"""A file that is found by its name, not named by the user, is opened only if it is a regular file of a sane size."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_corpus_saved_datasets import save
from wordpiece_fixtures import SPECIALS

from albert_data.corpus.inputs import find_inputs
from albert_data.errors import AlbertDataError
from albert_data.interop.scoring import load_masked_lm
from albert_data.storage.files import to_json
from albert_data.tokenizer.model import load_tokenizer
from albert_data.vocab.folder import is_saved

ODD = {"a FIFO": os.mkfifo, "a device": lambda path: path.symlink_to("/dev/zero"), "a folder": Path.mkdir}


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """End a test that waits, or reads without an end."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    yield
    signal.alarm(0)


def make_splits(folder: Path) -> None:
    save(folder / "train", ["a", "b"])
    (folder / "dataset_dict.json").write_text('{"splits": ["train"]}')


def write_files(**texts: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        folder.mkdir()
        for name, text in texts.items():
            (folder / name.replace("__", ".")).write_text(text)

    return write


make_vocab = write_files(
    vocab__txt="\n".join([*SPECIALS, "a", "b", ""]), tokenizer_config__json='{"do_lower_case": true}'
)
make_model = write_files(config__json='{"model_type": "albert"}', tokenizer_config__json="{}", spiece__model="")


def find(folder: Path) -> object:
    return find_inputs([str(folder)])


def load_vocab(folder: Path) -> object:
    return load_tokenizer(folder / "vocab.txt")


# What lies in a folder, the file that is odd, and what reads it.
PLACES: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "state.json": (lambda folder: save(folder, ["a", "b"]), find),
    "dataset_dict.json": (make_splits, find),
    "spiece.model": (make_vocab, load_tokenizer),
    "tokenizer.json": (make_vocab, load_tokenizer),
    "tokenizer_config.json": (make_vocab, load_vocab),
    "vocab.txt": (make_vocab, load_vocab),
    "config.json": (make_model, load_masked_lm),
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, name, kind):
    make, read = PLACES[name]
    path = tmp_path / "folder" / name
    make(path.parent)
    path.unlink(missing_ok=True)
    ODD[kind](path)
    with pytest.raises(AlbertDataError, match="it is a|are missing|holds 0"):
        read(path.parent)


@pytest.mark.parametrize("name", [name for name in PLACES if name.endswith(".json")])
def test_a_file_of_a_terabyte_is_refused_unread(tmp_path, name):
    make, read = PLACES[name]
    path = tmp_path / "folder" / name
    make(path.parent)
    path.touch()
    os.truncate(path, 1 << 40)  # sparse: it takes no room
    with pytest.raises(AlbertDataError, match=r"it has 1,099,511,627,776 bytes; at most [0-9,]+ are allowed"):
        read(path.parent)


def test_a_tokenizer_may_be_named_by_a_link_and_may_lie_behind_one(tmp_path, tokenizer_model):
    (tmp_path / "real").write_bytes(tokenizer_model)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "spiece.model").symlink_to("../real")
    assert load_tokenizer(tmp_path / "folder").model == load_tokenizer(tmp_path / "folder/spiece.model").model


def test_a_lone_surrogate_in_a_file_that_is_found_is_no_crash(tmp_path, tokenizer_model):
    (tmp_path / "spiece.model").write_bytes(tokenizer_model)
    (tmp_path / "vocab.json").write_text(json.dumps({"files": {}, "vocab_size": 9, "settings_sha256": "\ud800"}))
    assert not is_saved(tmp_path)
    assert json.loads(to_json({"a": "\ud800é"})) == {"a": "\ud800é"}
