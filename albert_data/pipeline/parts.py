"""Divide the documents of a block into parts that are small enough to tokenise at once.

Most blocks are one part. A JSON line of 100 MB is one block, and is cut into many documents: tokenising it at once took
5.2 GB.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from albert_data.data import Lines

PART_BYTES = 4 << 20


def split_lines(lines: Lines) -> Iterator[Lines]:
    """Yield parts of whole documents: as many as fit into PART_BYTES, but at least one."""
    document_begins = lines.line_offsets[lines.document_offsets]
    begin, num_documents = 0, len(lines.document_keys)
    while begin < num_documents:
        fit = int(np.searchsorted(document_begins, document_begins[begin] + PART_BYTES, side="right")) - 1
        end = max(begin + 1, fit)
        yield _slice_documents(lines, begin, end)
        begin = end


def _slice_documents(lines: Lines, begin: int, end: int) -> Lines:
    document_offsets = lines.document_offsets[begin : end + 1]
    line_offsets = lines.line_offsets[document_offsets[0] : document_offsets[-1] + 1]
    return Lines(
        utf8=lines.utf8[line_offsets[0] : line_offsets[-1]],
        line_offsets=line_offsets - line_offsets[0],
        document_offsets=document_offsets - document_offsets[0],
        document_keys=lines.document_keys[begin:end],
        source_codes=None if lines.source_codes is None else lines.source_codes[begin:end],
    )
