"""The library `tokenizers` with a tokenizer.json that may be hostile: its failures are errors of one line.

In: the values of a tokenizer.json. Out: ids, words and text, as the library gives them. The library is written in Rust.
Where its code fails, a regular expression that backtracks too long for one, Rust prints a message and a stack trace to
descriptor 2 and raises a PanicException, which is no Exception. And a chain of rules that each double a text makes
gigabytes of one letter. So a short text is tried through one rule after another, when the tokenizer is loaded, and a
long sentence in parts, before it is encoded. How long a regular expression takes is not bounded:
docs/explanation/reliability.md.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import numpy as np

from albert_data.errors import TokenizerError
from albert_data.tokenizer.chunks.lattice import ChunkIds
from albert_data.tokenizer.chunks.table import CERTAIN_LIMIT
from albert_data.tokenizer.kinds import Kind
from albert_data.tokenizer.sentencepiece.charsmap import split_charsmap
from albert_data.tokenizer.tokenizer_json import JSON_NAME, find_specials, hide_specials, import_tokenizers, list_pieces

_PROBE = "A a\t1. \u00e9e\u0301 \u5b66\u2581 \ufdfa"  # the last becomes eighteen letters, the most that Unicode has
_MAX_GROWTH = 64  # of the probe
_MAX_CHARS = 4 << 20  # of a sentence in its normalised form, where that is over _MAX_SHARE times its own
_MAX_SHARE = 16
_MAX_STRING = 1000  # characters of a rule's own text in the probe; a longer one is a table
_TABLE = "precompiled_charsmap"
RANDOM_RULES = ("dropout", "alpha", "nbest_size")  # of a model
NO_MODEL = {"type": "BPE", "vocab": {}, "merges": []}


class Backend:
    """A tokenizer of the library, for text alone: no special piece is added to a text, or found in it."""

    def __init__(self, values: dict[str, Any], name: str) -> None:
        """Raises TokenizerError if the library is not installed or refuses the values."""
        self._name, self._library = name, import_tokenizers(name)
        with explain_failures(f"can't load {name}"):
            self._tokenizer = self._load({**values, "post_processor": None, "truncation": None, "padding": None})
        self._tokenizer.encode_special_tokens = True
        with explain_failures(f"fails in the rules of {name}"):
            self._try_rules(values, ("decoder",))
            self._part_len = max(1, _MAX_CHARS // self._try_rules(values, ("normalizer", "pre_tokenizer")))

    def _load(self, values: dict[str, Any]) -> Any:
        return self._library.Tokenizer.from_str(json.dumps(values))

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids (int32) of all texts, and how many each has.

        In one call, which takes two thirds of the time of one for each. Not by encode_batch, which starts threads;
        these do not survive a fork.
        """
        with explain_failures(f"fails on a text with {self._name}"):
            checked = list(map(self.check_growth, texts))
            found = self._tokenizer.encode(checked, is_pretokenized=True, add_special_tokens=False)
        return np.array(found.ids, np.int32), np.bincount(found.word_ids, minlength=len(texts))

    def split(self, text: str) -> list[str]:
        """The words of a text, after normalisation."""
        with explain_failures(f"fails on a text with {self._name}"):
            return _split(self._tokenizer, text)

    def decode(self, ids: Sequence[int]) -> str:
        with explain_failures(f"can't decode ids of {self._name}"):
            return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def check_growth(self, text: str) -> str:
        """Raise TokenizerError if a text becomes too long. A part of it may become `_MAX_CHARS` characters at most."""
        if len(text) <= self._part_len:
            return text
        num_chars, most = 0, max(_MAX_CHARS, _MAX_SHARE * len(text))
        for begin in range(0, len(text), self._part_len):
            num_chars += sum(map(len, _split(self._tokenizer, text[begin : begin + self._part_len])))
            if num_chars > most:
                raise TokenizerError(
                    f"{self._name} makes over {most:,} characters of a sentence of {len(text):,}; "
                    "give a tokenizer without rules that multiply text"
                )
        return text

    def _try_rules(self, values: dict[str, Any], kinds: Sequence[str]) -> int:
        """The length of the probe after the rules of components. Raises TokenizerError if it grows too much."""
        rules = [(kind, rule) for kind in kinds for rule in list_rules(values.get(kind))]
        text = probe = " ".join([_PROBE, *dict.fromkeys(string for _, rule in rules for string in _list_strings(rule))])
        for kind, rule in rules:
            if isinstance(table := rule.get(_TABLE), str):
                try:
                    split_charsmap(base64.b64decode(table))  # refuses replacements that make long texts of short ones
                except ValueError as error:
                    raise TokenizerError(f"{self._name}: its {_TABLE} is damaged: {error}; copy it again") from error
            bare = self._load({"version": "1.0", "model": NO_MODEL, kind: rule})
            text = bare.decoder.decode([text]) if kind == "decoder" else "".join(_split(bare, text))
            if len(text) > _MAX_GROWTH * len(probe):
                raise TokenizerError(
                    f"{self._name}: its {kind} makes {len(text):,} characters of {len(probe):,}, and at most "
                    f"{_MAX_GROWTH} times as many are allowed; give a tokenizer without rules that multiply text"
                )
        return len(text)


def _split(tokenizer: Any, text: str) -> list[str]:
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    if tokenizer.pre_tokenizer is None:
        return [text]
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def list_rules(*components: Any) -> Iterator[dict[str, Any]]:
    """The rules of components in their order, those of sequences too.

    >>> list(list_rules({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}))
    [{'type': 'NFC'}, {'type': 'Lowercase'}]
    """
    for component in components:
        if isinstance(component, dict):
            inner = component.get("normalizers") or component.get("pretokenizers") or component.get("decoders")
            if isinstance(inner, list):
                yield from list_rules(*inner)
            else:
                yield component


def _list_strings(value: Any) -> Iterator[str]:
    """What stands in a rule: patterns and what they are replaced by."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _list_strings(inner)
    elif isinstance(value, str) and len(value) <= _MAX_STRING:
        yield value


class JsonKind(Kind):
    """What all kinds have whose model is a tokenizer.json."""

    file_name = JSON_NAME
    packages = ("tokenizers",)

    def __init__(self, values: dict[str, Any], name: str) -> None:
        """values: of the tokenizer.json. Raises TokenizerError if a special piece is missing."""
        self._name, self.pieces = name, list_pieces(values, name)
        if found := [rule for rule in RANDOM_RULES if values["model"].get(rule)]:
            self.note = f"{name} has {', '.join(found)}, so its ids would be random; a build encodes text without"
        values = {**values, "model": {key: one for key, one in values["model"].items() if key not in RANDOM_RULES}}
        self.specials = find_specials(self.pieces, name)
        with explain_failures(f"can't load {name}"):
            self._values = hide_specials(values, [self.pieces[i] for i in self.specials.to_dict().values()])

    @cached_property
    def _backend(self) -> Backend:
        return Backend(self._values, self._name)

    def encode_texts(self, texts: list[bytes], backend: Backend | None = None) -> ChunkIds:
        """The library's ids of texts. Text that spells a hidden piece is unknown."""
        ids, lengths = (backend or self._backend).encode(list(map(bytes.decode, texts)))
        ids[self.specials.is_special[ids]] = self.specials.unk_id
        return ChunkIds(ids, lengths, np.full(len(lengths), CERTAIN_LIMIT))

    def encode_each(self, texts: list[bytes]) -> list[np.ndarray]:
        """The same, an array for each text."""
        ids, lengths, _ = self.encode_texts(texts)
        return np.split(ids, np.cumsum(lengths)[:-1])


# ---- panics ----


class _Stderr:
    """Descriptor 2, which leads to a file while threads are in the library. What else is written is passed on after."""

    def __init__(self) -> None:
        self._lock, self._num_inside, self._is_panic = threading.Lock(), 0, False
        self._true: int | None = None
        self._file = -1

    def enter(self) -> None:
        with self._lock:
            self._num_inside += 1
            if self._num_inside == 1:
                with suppress(OSError):  # it is closed, so nothing can be printed
                    self._file = _open_nameless()
                    self._true = os.dup(2)
                    os.dup2(self._file, 2)

    def leave(self, *, is_panic: bool) -> None:
        with self._lock:
            self._is_panic |= is_panic
            self._num_inside -= 1
            if self._num_inside == 0:
                self.restore()
                if not self._is_panic and (written := os.pread(self._file, 1 << 20, 0)):
                    os.write(2, written)
                os.close(self._file)
                self._is_panic = False

    def restore(self) -> None:
        if self._true is not None:
            os.dup2(self._true, 2)
            os.close(self._true)
            self._true = None


def _open_nameless() -> int:
    if hasattr(os, "memfd_create"):  # Linux: no disk, and a fiftieth of the time
        return os.memfd_create("stderr")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


_stderr = _Stderr()


def _begin_anew() -> None:
    """In a process that was forked while a thread was in the library, which is not there now."""
    global _stderr
    _stderr.restore()
    _stderr = _Stderr()


os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def explain_failures(what: str) -> Iterator[None]:
    """Raise a TokenizerError of one line for an exception or a panic of the library."""
    stderr, is_panic = _stderr, False
    stderr.enter()
    try:
        yield
    except TokenizerError:
        raise
    except BaseException as error:
        is_panic = type(error).__name__ == "PanicException"  # of Rust; its class can't be imported
        if not is_panic and not isinstance(error, Exception):
            raise
        why = " ".join(str(error).split())[:300]
        raise TokenizerError(f"the library tokenizers {what}: {why}; give another tokenizer") from error
    finally:
        stderr.leave(is_panic=is_panic)
