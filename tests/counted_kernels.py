"""The kernels of corpus/ and sentences/ as plain Python that counts loads and stores, the same on every machine."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from albert_data import kernels

_MODULES = (
    *("text.ascii", "text.utf8", "kernels.fnv"),
    *("corpus.lines.valid_utf8", "corpus.lines.white_space", "corpus.lines.line_ends", "clean.documents"),
    "sentences.segmenting",
)


class Counted(ModuleType):
    """Stands for albert_data.kernels. count: loads and stores of items, words and runs of 64 bytes."""

    count = 0

    def __init__(self) -> None:
        super().__init__("albert_data.kernels")
        ours = {*vars(Counted), *vars(self)}
        vars(self).update({name: value for name, value in vars(kernels).items() if name not in ours})
        self.I64, self.kernel, self.helper = int, _unchanged, _unchanged
        self.pointer = lambda array: array
        self.rarely = lambda condition: condition

    def item(self, array: np.ndarray, at: int) -> Any:
        self.count += 1
        value = array[at] if at < len(array) else array.dtype.type(0)
        return value if array.dtype == np.uint64 else int(value)

    def put(self, array: np.ndarray, at: int, value: int) -> None:
        self.count += 1
        array[at] = value

    def load_u64(self, array: np.ndarray, at: int) -> np.uint64:
        self.count += 1
        return np.uint64(int.from_bytes(array.view(np.uint8)[at : at + 8].tobytes(), "little"))

    def store_u64(self, array: np.ndarray, at: int, word: np.uint64) -> None:
        self.count += 1
        array[at : at + 8] = np.frombuffer(int(word).to_bytes(8, "little"), np.uint8)

    def find_bytes(self, array: np.ndarray, at: int, fold: int, low: int, span: int) -> np.uint64:
        self.count += 1
        found = ((array[at : at + 64] | fold) - low) < span
        return np.uint64(int.from_bytes(np.packbits(found, bitorder="little").tobytes(), "little"))

    def copy_items(self, target: np.ndarray, target_at: int, source: np.ndarray, at: int, count: int) -> None:
        self.count += 1 + max(0, count) // 8
        target[target_at : target_at + count] = source[at : at + count]

    def count_trailing_zeros(self, word: np.uint64) -> int:
        return (int(word) & -int(word)).bit_length() - 1 if word else 64

    def count_ones(self, word: np.uint64) -> int:
        return int(word).bit_count()


def _unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@contextmanager
def counted_kernels() -> Iterator[tuple[Counted, dict[str, ModuleType]]]:
    """The counter, and the modules that hold kernels, loaded anew on top of it."""
    counter, names = Counted(), [f"albert_data.{name}" for name in _MODULES]
    draws, saved = "albert_data.kernels.draws", dict(sys.modules)
    try:
        sys.modules["albert_data.kernels"] = counter
        loaded = {name.rpartition(".")[2]: _load(name) for name in [draws, *names]}
        with warnings.catch_warnings(), np.errstate(over="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)
            yield counter, loaded
    finally:
        for name in ["albert_data.kernels", draws, *names]:
            sys.modules[name] = saved[name]


def _load(name: str) -> ModuleType:
    spec = importlib.util.find_spec(name)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
