"""What the rooms hand to one another: documents as text, then as token ids, then as rows.

    Lines -> Text -> Documents -> Pairs -> Examples
    corpus   sentences  tokenizer  examples   shards

All are ragged arrays: flat values and offsets, never lists of lists. Item i of values `x` with offsets `o` is
`x[o[i] : o[i + 1]]`, so there is one more offset than items, and the first is 0. In the shapes below D is the number of
documents, S of sentences, R of rows, and N of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class DocumentColumns(NamedTuple):
    """What is known of each document beside its text, from `Lines` on; `Pairs` have it of each row's document.

    keys: uint64 [D], hashes of the documents' text in NFC
    source_codes: uint32 [D], a number for each document's source: what `encode_source` makes of its language, and after
        tokenising, where sources have passes of their own, its place among these (survey/passes.py); None where the
        build has one language
    groups: uint64 [D], what decides each document's split: a hash of its group, or its key where it names none; None
        where the settings name no field
    forms: uint64 [D], 0 if the text is in NFC, else a hash of it as it is; None where all are in NFC
    """

    keys: np.ndarray
    source_codes: np.ndarray | None = None
    groups: np.ndarray | None = None
    forms: np.ndarray | None = None

    def take(self, documents: Any) -> DocumentColumns:
        """The columns of some documents: an array of their numbers, a mask or a slice."""
        return DocumentColumns._make(None if column is None else column[documents] for column in self)


@dataclass(frozen=True, kw_only=True)
class _HasColumns:
    """What `Lines`, `Text`, `Documents` and `Pairs` have in common."""

    columns: DocumentColumns

    @property
    def document_keys(self) -> np.ndarray:
        return self.columns.keys


@dataclass(frozen=True, kw_only=True)
class Lines(_HasColumns):
    """Documents of canonical text, and their columns.

    utf8: uint8 [N], every line followed by a line feed
    line_offsets: int64 [lines + 1], in bytes
    document_offsets: int64 [D + 1], in lines
    ids: str [D], of the records, "" for none; None where the settings name no field
    wholes: uint64 [D], the keys, but of the parts of a document that was cut what they share; None where none was cut
    """

    utf8: np.ndarray
    line_offsets: np.ndarray
    document_offsets: np.ndarray
    ids: np.ndarray | None = None
    wholes: np.ndarray | None = None

    def take(self, is_taken: np.ndarray) -> Lines:
        """Some of the documents. is_taken: bool, of each."""
        document_offsets, has_line = take_items(self.document_offsets, is_taken)
        line_offsets, has_byte = take_items(self.line_offsets, has_line)
        return Lines(
            utf8=self.utf8[has_byte],
            line_offsets=line_offsets,
            document_offsets=document_offsets,
            columns=self.columns.take(is_taken),
            ids=None if self.ids is None else self.ids[is_taken],
            wholes=None if self.wholes is None else self.wholes[is_taken],
        )


@dataclass(frozen=True, kw_only=True)
class Text(_HasColumns):
    """Documents as sentences, and their columns.

    utf8: uint8 [N]
    sentence_begins, sentence_ends: int64 [S], in bytes, in order; there may be text between two sentences
    document_offsets: int64 [D + 1], in sentences
    is_heading: bool [S], whether the sentence belongs with the next one
    """

    utf8: np.ndarray
    sentence_begins: np.ndarray
    sentence_ends: np.ndarray
    document_offsets: np.ndarray
    is_heading: np.ndarray


def take_items(offsets: np.ndarray, is_taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The offsets of some items of a ragged array, and whether each of its values is theirs. is_taken: of each item.

    >>> take_items(np.array([0, 2, 3, 6]), np.array([True, False, True]))
    (array([0, 2, 5]), array([ True,  True, False,  True,  True,  True]))
    """
    lengths = np.diff(offsets)
    return np.append(0, np.cumsum(lengths[is_taken])), np.repeat(is_taken, lengths)


def slice_sentences(utf8: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> list[bytes]:
    """The bytes of each sentence."""
    data = utf8.tobytes()
    return [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


@dataclass(frozen=True, kw_only=True)
class Documents(_HasColumns):
    """Documents as token ids, and their columns.

    ids: uint16 or uint32 [N]
    sentence_offsets: int64 [S + 1], in tokens
    is_heading: bool [S], see `Text`
    document_offsets: int64 [D + 1], in sentences
    """

    ids: np.ndarray
    sentence_offsets: np.ndarray
    is_heading: np.ndarray
    document_offsets: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Specials:
    """The ids of the special pieces.

    is_special: bool [vocabulary], true for those that are never masked
    """

    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    is_special: np.ndarray

    @classmethod
    def from_ids(cls, vocab_size: int, *, pad_id: int, unk_id: int, cls_id: int, sep_id: int, mask_id: int) -> Specials:
        is_special = np.zeros(vocab_size, bool)
        is_special[[pad_id, cls_id, sep_id, mask_id]] = True
        return cls(pad_id=pad_id, unk_id=unk_id, cls_id=cls_id, sep_id=sep_id, mask_id=mask_id, is_special=is_special)

    def to_dict(self) -> dict[str, int]:
        return {name: value for name, value in vars(self).items() if name != "is_special"}


@dataclass(frozen=True, kw_only=True)
class Pairs(_HasColumns):
    """Unmasked rows, each `[CLS] A [SEP] B [SEP]`, or `[CLS] A [SEP]` where no pair could be made.

    columns: [R], of the document that each row was made from
    ids: uint16 or uint32 [N]
    offsets: int64 [R + 1], in tokens
    segment_a_len: int32 [R], tokens of A alone
    sop_label: int8 [R], -1 for no second segment; what else it means depends on the task (examples/pair_tasks.py)
    indices: uint32 [R], the row's number in its document and pass
    """

    ids: np.ndarray
    offsets: np.ndarray
    segment_a_len: np.ndarray
    sop_label: np.ndarray
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.segment_a_len)


class ExampleArrays(NamedTuple):
    """The arrays of `Examples` as kernels take them. sources: empty where the shards have no such column."""

    input_ids: np.ndarray
    offsets: np.ndarray
    segment_a_len: np.ndarray
    sop_label: np.ndarray
    masked_positions: np.ndarray
    masked_ids: np.ndarray
    mask_offsets: np.ndarray
    document_keys: np.ndarray
    sources: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Masked rows, the columns of a shard.

    input_ids: uint16 or uint32 [N], with the masks
    offsets: int64 [R + 1], in tokens
    segment_a_len, sop_label, document_keys: [R], as in `Pairs`
    masked_positions: uint16 [M], rising inside a row, counted from the row's [CLS]
    masked_ids: as input_ids [M], the originals
    mask_offsets: int64 [R + 1], in masked tokens
    sources: uint16 [R], indices into the manifest's `sources`; None where the shards have no such column
    document_keys_b: uint64 [R], the key of the document of segment B, or without a B that of A; None where the shards
        have no such column, since both segments are always of one document
    """

    input_ids: np.ndarray
    offsets: np.ndarray
    segment_a_len: np.ndarray
    sop_label: np.ndarray
    masked_positions: np.ndarray
    masked_ids: np.ndarray
    mask_offsets: np.ndarray
    document_keys: np.ndarray
    sources: np.ndarray | None = None
    document_keys_b: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.segment_a_len)

    @property
    def arrays(self) -> ExampleArrays:
        """For kernels. An empty array stands for no sources, so that Numba compiles each kernel once for both."""
        values = {name: getattr(self, name) for name in ExampleArrays._fields}
        return ExampleArrays(**(values if self.sources is not None else {**values, "sources": np.zeros(0, np.uint16)}))
