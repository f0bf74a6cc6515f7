"""Train a vocabulary in a process of its own, and show the progress.

SentencePiece trains for minutes inside one call, which can't be interrupted and reports its progress only in its log.
In a process of its own, the log is a pipe that is read here, Ctrl-C ends the process, and if memory runs out the system
kills that process alone. The process is not forked: OpenMP threads, which the trainer uses, don't survive a fork.
Unknown lines of the log are ignored. The trainer of `tokenizers` has no log.
"""

from __future__ import annotations

import math
import os
import re
import selectors
import subprocess
import sys
from collections import deque
from contextlib import ExitStack, suppress
from typing import Any

from albert_data.config import VocabConfig
from albert_data.errors import TokenizerError
from albert_data.jobs.progress import Progress
from albert_data.vocab.trainer import COMMAND, read_answer, send

_TICK_SECONDS = 0.5
_READ_BYTES = 1 << 16
_LINES_KEPT = 3
_NORMALISING, _FINDING, _CHOOSING, _MERGING = (
    "normalising text",
    "finding candidates",
    "choosing pieces",
    "merging pieces",
)
_PRUNED_TO = 1.1  # the trainer prunes a unigram model to 1.1 times the vocabulary size, then takes the best pieces
_SEEDS = re.compile(rb"Initialized (\d+) seed")
_ROUND = re.compile(rb"EM sub_iter=\d+ size=(\d+)")
_MERGES = re.compile(rb"merges=(\d+) ")
# Lines that are always in the log. If the process dies, the last _LINES_KEPT other lines are quoted: they may say why.
_ORDINARY = re.compile(rb"I\d|WARNING: All log messages| |}|\w*_spec {|$")


class _Watcher:
    """Turns the trainer's log into progress."""

    def __init__(self, config: VocabConfig, num_characters: int, progress: Progress) -> None:
        self._config, self._progress = config, progress
        self._num_merges = max(config.vocab_size - num_characters, 1)
        self._log_smallest, self._log_seeds, self._done = math.log(_PRUNED_TO * config.vocab_size), 0.0, 0
        self._rest, self.last_lines = b"", deque[str](maxlen=_LINES_KEPT)
        progress.start(_MERGING if config.model_type == "wordpiece" else _NORMALISING, None, "")

    def feed(self, log: bytes) -> None:
        *lines, self._rest = (self._rest + log).split(b"\n")
        for line in lines:
            self._read(line)

    def tick(self) -> None:
        """Update the time that is shown."""
        self._progress.advance(0)

    def _read(self, line: bytes) -> None:
        if b"Extracting seed" in line or b"Making suffix array" in line:
            self._progress.start(_FINDING, None, "")
        elif found := _SEEDS.search(line):
            self._log_seeds = math.log(max(int(found[1]), 1))
            self._progress.start(_CHOOSING, 100, "%")
        elif found := _ROUND.search(line):  # each round keeps 3/4 of the pieces, so progress is linear in the logarithm
            left = math.log(max(int(found[1]), 1)) - self._log_smallest
            all_rounds = self._log_seeds - self._log_smallest
            self._reach(int(100 * (1 - left / all_rounds)) if all_rounds > 0 else 100, 100)
        elif b"Tokenizing input sentences" in line and self._config.model_type == "bpe":
            self._progress.start(_MERGING, self._num_merges, "pieces")
        elif found := _MERGES.search(line):
            self._reach(int(found[1]), self._num_merges)
        elif not _ORDINARY.match(line):
            self.last_lines.append(line.decode(errors="replace"))

    def _reach(self, done: int, total: int) -> None:
        done = min(max(done, self._done), total)
        self._progress.advance(done - self._done)
        self._done = done


class TrainerProcess:
    """Runs the trainer in a process of its own: a `Trainer` for `train_model`."""

    def __init__(self, config: VocabConfig, num_characters: int, progress: Progress) -> None:
        self._watcher = _Watcher(config, num_characters, progress)

    def __call__(self, sentences: list[bytes], options: dict[str, Any]) -> bytes:
        """Raises RuntimeError with the trainer's message, and TokenizerError where the process dies."""
        with ExitStack() as ends:
            process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            ends.callback(_end, process)
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # the process died; that shows below, as there is no answer
                send(process.stdin, sentences, {**options, "minloglevel": 0})
            answer = self._wait_for_answer(process)
            code = process.wait()
            try:
                model = read_answer(answer)
            except MemoryError:  # the trainer reported one; the error below says what to do
                model = None
            if model is None:
                raise _explain_death(code, sum(map(len, sentences)), " ".join(self._watcher.last_lines))
            return model

    def _wait_for_answer(self, process: subprocess.Popen[bytes]) -> bytes:
        """Feed the log to the watcher until both pipes are closed. Returns the answer."""
        assert process.stdout is not None
        assert process.stderr is not None
        answer, log, parts = process.stdout.fileno(), process.stderr.fileno(), []
        with selectors.DefaultSelector() as selector:
            for pipe in (answer, log):
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select(_TICK_SECONDS):
                    data = os.read(key.fd, _READ_BYTES)
                    if not data:
                        selector.unregister(key.fd)
                    elif key.fd == log:
                        self._watcher.feed(data)
                    else:
                        parts.append(data)
                self._watcher.tick()
        return b"".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        with suppress(BrokenPipeError):  # closing flushes what was not yet written
            if pipe is not None:
                pipe.close()
    process.wait()


def _explain_death(code: int, num_bytes: int, last_lines: str) -> TokenizerError:
    cause = f"signal {-code}" if code < 0 else f"exit code {code}"
    said = f" and said: {last_lines}" if last_lines else ""
    return TokenizerError(
        f"the process that trains the vocabulary on {num_bytes / 1e6:,.1f} MB of sentences died ({cause}){said}; this "
        "mostly means that memory ran out: try a smaller --sample-bytes, or a machine with more memory"
    )
