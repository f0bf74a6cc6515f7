"""The texts of some near-duplicates, side by side, for people to look at.

In: pairs of documents, and the sorted runs with their rows. Out: of each pair the words around the first difference.
The rows of a document are read by their shuffle keys, and put in the order of the text; only if a sentence is longer
than a row, alone or with its heading, some may be in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.data import Examples
from albert_data.dedup.near_duplicates import SimilarPair
from albert_data.dedup.shingles import divide_text
from albert_data.draws import PAIRING, shuffle_keys, stream
from albert_data.examples.pairs import draws_backward
from albert_data.pair_tasks import SWAPPED
from albert_data.pipeline.row_buffer import RowScratch, take_examples
from albert_data.pipeline.sorted_runs import Held, read_range
from albert_data.shards.manifest import SPLITS, NearDuplicate
from albert_data.shards.rows import restore_ids
from albert_data.tokenizer.model import Tokenizer

_MOST_ROWS = 64  # read of a document
_MOST_WORDS = 4000  # compared of a text, because time is the square of its length
_WORDS_BEFORE, _WORDS = 12, 60  # shown: before the first difference, and in all
_MOST_CHARACTERS = 600  # of a text that is shown: it may have no spaces


class TextReader:
    """Reads the beginnings of documents from sorted runs. runs: their names."""

    def __init__(self, folder: Path, runs: Sequence[str], tokenizer: Tokenizer, config: ExampleConfig) -> None:
        self._folder, self._runs, self._tokenizer, self._config = folder, runs, tokenizer, config
        self._scratch = RowScratch(tokenizer.id_dtype)

    def describe(self, pair: SimilarPair) -> NearDuplicate:
        dropped, kept = self._read(pair.dropped, pair.dropped_part), self._read(pair.kept, pair.kept_part)
        texts = cut_around_difference(dropped, kept)
        keys = f"{pair.dropped:016x}", f"{pair.kept:016x}"
        return NearDuplicate(
            dropped=keys[0], kept=keys[1], similarity=pair.similarity, dropped_text=texts[0], kept_text=texts[1]
        )

    def _read(self, key: int, part: str) -> str:
        """The text of a document's first rows; empty where a mixture uses none of them. part: of its map task."""
        task = part.rpartition("-")[0]
        runs = [self._folder / name for name in self._runs if name.startswith(f"{task}-")]
        rows = list(self._find_rows(key, runs)) if runs else []
        with np.errstate(over="ignore"):  # Python calls it with NumPy's scalars, which warn where kernels wrap around
            state = stream(np.uint64(self._config.seed), PAIRING, np.uint64(key), 0, 0)
            return " ".join(reversed(rows) if draws_backward(state) else rows)

    def _find_rows(self, key: int, runs: list[Path]) -> Iterator[str]:
        keys, indices = np.full(_MOST_ROWS, key, np.uint64), np.arange(_MOST_ROWS, dtype=np.uint32)
        for at in shuffle_keys(np.uint64(self._config.seed), keys, 0, indices).tolist():
            for split in SPLITS:
                records, found = read_range([Held(run, split) for run in runs], at, at, self._scratch)
                starts = found.starts[found.keys.document_keys == np.uint64(key)]
                if len(starts):
                    yield self._decode(take_examples(records, starts[:1]))
                    break
            else:
                return

    def _decode(self, row: Examples) -> str:
        """The text of a row, as it was before it was masked, and its segments swapped."""
        ids, sep = restore_ids(row), 1 + int(row.segment_a_len[0])
        segments = [ids[1:sep], ids[sep + 1 : -1]]
        if row.sop_label[0] == self._config.task.label_of(SWAPPED):
            segments.reverse()
        return self._tokenizer.decode(np.concatenate(segments))


def cut_around_difference(text: str, other: str) -> tuple[str, str]:
    """Of both texts the words around the begin of the longest part that they share, or around its end if both begin so.

    >>> cut_around_difference("one two three", "one two four")
    ('one two three', 'one two four')
    """
    mine, its = divide_text(text)[:_MOST_WORDS], divide_text(other)[:_MOST_WORDS]
    letters, others = ([word.strip() for word in words] for words in (mine, its))
    same = SequenceMatcher(None, letters, others, autojunk=False).find_longest_match()
    begins = (same.a, same.b) if same.a or same.b else (same.size, same.size)
    first, second = (
        "".join(words[max(0, begin - _WORDS_BEFORE) :][:_WORDS]).strip()[:_MOST_CHARACTERS]
        for words, begin in zip((mine, its), begins, strict=True)
    )
    return first, second
