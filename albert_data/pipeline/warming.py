"""Compile the kernels in the parent, before workers are forked, so that each inherits the machine code.

Compiling takes half a minute of one core, once a machine. So where it has to be done, `compile_ahead` does it in
processes beside each other; all find later on the disk what each has compiled.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import multiprocess
import numpy as np

from albert_data.config import BuildConfig, ExampleConfig
from albert_data.corpus.blocks import Block
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import read_documents
from albert_data.corpus.json_lines import compile_scanner
from albert_data.corpus.line_ends import break_lines
from albert_data.draws import split_keys
from albert_data.examples.masks import mask_pairs, mask_rows
from albert_data.examples.pairs import make_pairs
from albert_data.interrupts import hold_interrupts
from albert_data.kernels import is_kept
from albert_data.pipeline.mapping import MapJob
from albert_data.pipeline.progress import Progress
from albert_data.pipeline.receipts import TaskReceipt
from albert_data.pipeline.records import FoundRecords, RecordScratch, RowKeys, find_copies, find_records, take_examples
from albert_data.pipeline.sorted_runs import KeyedRows, join_keys, sort_rows
from albert_data.pipeline.stages import Stages
from albert_data.sentences.segmenting import segment_lines
from albert_data.sentences.text import Text, make_text
from albert_data.tokenizer.cuts import walk_charsmap
from albert_data.tokenizer.model import Documents, Specials, Tokenizer, load_tokenizer
from albert_data.tokenizer.trie import make_trie
from albert_data.tokenizer.words import WordRule

_PATIENCE_SECONDS = 1.5  # loading compiled kernels takes less, compiling them more
_NOTICE = "compiling the kernels, once a machine"
WARMING_BLOCK = Block(data=b"One word.\nTwo words.\n\nThree ex-\namples.\n", format="txt", path="", start=0)


def compile_kernels(job: MapJob, tokenizer: Tokenizer, progress: Progress) -> None:
    """Run every kernel that a build needs once, on a few words. Raises what `Tokenizer.prepare` does."""

    def make_some_rows() -> None:
        compile_reading()
        tokenizer.compile_rare()
        parts = job.read(WARMING_BLOCK, Damage(), TaskReceipt())
        _sort_and_take([job.make_rows(documents, 0, Stages()) for documents in parts])

    run_once(make_some_rows, progress)


def load_to_encode(path: Path) -> Tokenizer:
    """Load a tokenizer and run on a letter the kernels that a build needs; a list of str would take one more."""
    tokenizer, begin = load_tokenizer(path), np.zeros(1, np.int64)
    letter = Text(
        utf8=np.full(1, ord("a"), np.uint8),
        sentence_begins=begin,
        sentence_ends=begin + 1,
        is_heading=np.zeros(1, bool),
        document_offsets=np.array([0, 1]),
        document_keys=np.zeros(1, np.uint64),
    )
    tokenizer.encode(letter)
    tokenizer.compile_rare()
    return tokenizer


def compile_reading() -> None:
    """Run the kernels that blocks are made with, and those of rare JSON lines."""
    break_lines(WARMING_BLOCK.data)
    compile_scanner()


def run_once(work: Callable[[], object], progress: Progress) -> None:
    """Run what compiles kernels, and say so if that takes its time."""
    notice = threading.Timer(_PATIENCE_SECONDS, progress.say, [_NOTICE])
    try:
        notice.start()  # in here, or a Ctrl-C would leave it waiting
        work()
    finally:
        notice.cancel()


@contextmanager
def compile_ahead(progress: Progress) -> Iterator[None]:
    """Compile some kernels in other processes while the caller loads a tokenizer, which compiles others."""
    if is_kept(segment_lines) and is_kept(mask_rows) and is_kept(walk_charsmap):
        yield
        return
    progress.say(_NOTICE)
    context = multiprocess.get_context("fork" if sys.platform == "linux" else "spawn")
    works = ((_segment_something,), (_make_some_trie, _mask_something))
    processes = [context.Process(target=_run_in_process, args=some, daemon=True) for some in works]
    with ExitStack() as ends:
        with hold_interrupts():  # a fork's hooks swallow it
            for process in processes:
                process.start()
                ends.callback(process.join)
                ends.callback(process.kill)  # before that: they end in reverse
        yield
        for process in processes:
            process.join()


def _run_in_process(*works: Callable[[], None]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for work in works:
        work()


def _make_some_trie() -> None:
    make_trie(["a"], [0], [0.0], unk_id=0, vocab_size=1, unknown_is_whole=False)


def _segment_something() -> None:
    config = BuildConfig().text
    compile_reading()
    make_text(read_documents(WARMING_BLOCK, config, Damage()), config)


def _mask_something() -> None:
    config, num_ids = ExampleConfig(), 16
    ids = np.arange(num_ids, dtype=np.uint16)
    specials = Specials(pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4, is_special=ids < 5)
    words = WordRule.every_piece(num_ids)
    documents = Documents(
        ids=ids[5:],
        sentence_offsets=np.array([0, 5, num_ids - 5]),
        is_heading=np.zeros(2, bool),
        document_offsets=np.array([0, 2]),
        document_keys=np.zeros(1, np.uint64),
    )
    pairs = make_pairs(documents, specials, words, config, 0)
    examples = mask_pairs(pairs, specials, words, np.arange(5, num_ids, dtype=np.uint32), config, 0)
    languages = np.zeros(len(pairs), np.uint32)
    _sort_and_take([KeyedRows(examples=examples, keys=RowKeys.empty(len(pairs)), languages=languages)])


def _sort_and_take(parts: list[KeyedRows]) -> None:
    """What the rows go through from mapping to a shard, without a file between."""
    keys = join_keys(parts)
    split_keys(np.uint64(0), keys.document_keys)
    num_rows = len(keys.indices)
    scratch, found = RecordScratch(parts[0].examples.input_ids.dtype), FoundRecords.empty(num_rows)
    run = sort_rows(parts, keys, np.zeros(num_rows, bool), scratch)
    records = scratch.reserve(0)  # the records that `sort_rows` wrote: the buffer does not grow
    find_records(records, 0, len(run.records), np.uint64(0), np.uint64(2**64 - 1), found, 0)
    find_copies(records, found.starts, np.zeros(num_rows, bool))
    take_examples(records, found.starts)
