"""The trainers of SentencePiece and `tokenizers`, and a process of its own to run them in.

SentencePiece trains for minutes inside one call, which can't be interrupted and reports its progress only in its log.
In a process of its own, the log is a pipe that is read here, Ctrl-C ends the process, and if memory runs out the system
kills that process alone. The process is not forked: OpenMP threads, which the trainer uses, don't survive a fork. So it
runs `main` in a new Python:

    stdin     a pickle: sentences and options. The parent keeps stdin open, and the process ends when it is closed, as
              it is when the parent dies
    stdout    a pickle of the model, or of the trainer's error
    stderr    the trainer's log; unknown lines are ignored. The trainer of `tokenizers` has none
"""

from __future__ import annotations

import io
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from subprocess import PIPE
from typing import IO, Any

import sentencepiece

from albert_data.config import BYTE_BPE, SENTENCEPIECE_TYPES, WORDPIECE, VocabConfig
from albert_data.errors import TokenizerError
from albert_data.jobs.progress import Progress

Trainer = Callable[[list[bytes], dict[str, Any]], bytes]
# Its arguments are the parent's sys.path, so that both import from the same folders.
COMMAND = "import sys; sys.path[:] = sys.argv[1:]; from albert_data.vocab.process import main; main()"
_TICK_SECONDS = 0.5
_READ_BYTES = 1 << 16
_LINES_KEPT = 3
_PRUNED_TO = 1.1  # the trainer prunes a unigram model to 1.1 times the vocabulary size, then takes the best pieces
_SEEDS = re.compile(rb"Initialized (\d+) seed")
_ROUND = re.compile(rb"EM sub_iter=\d+ size=(\d+)")
_MERGES = re.compile(rb"merges=(\d+) ")
# Lines that are always in the log. If the process dies, the last _LINES_KEPT other lines are quoted: they may say why.
_ORDINARY = re.compile(rb"I\d|WARNING: All log messages| |}|\w*_spec {|$")


def train(sentences: list[bytes], options: dict[str, Any]) -> bytes:
    """The serialised model, the pieces of a WordPiece vocabulary, a line each, or the JSON of a byte-level BPE.

    Raises RuntimeError with the trainer's message, or MemoryError.
    """
    if options["model_type"] == WORDPIECE:
        return _train_wordpiece(sentences, options)
    if options["model_type"] == BYTE_BPE:
        return _train_byte_bpe(sentences, options)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(sentence_iterator=iter(sentences), model_writer=model, **options)
    return model.getvalue()


def _train_wordpiece(sentences: list[bytes], options: dict[str, Any]) -> bytes:
    """Join the most frequent pair of neighbours, as BPE does, and of equally frequent ones that of the lowest ids.

    Left to itself the trainer numbers the forms of characters inside words ("##a") as a hash table yields them,
    differently each time. Here they are special pieces, which it numbers in the order in which they are given.

    options: vocab_size; symbols: special pieces, characters and their forms inside words, the first pieces; lowercase:
    of BERT's normaliser; lost: characters that divide words, as they have no piece.
    """
    import tokenizers

    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    normalise = tokenizers.normalizers.BertNormalizer(lowercase=options["lowercase"]).normalize_str
    without = dict.fromkeys(map(ord, options["lost"]), " ")
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=options["vocab_size"],
        min_frequency=2,
        special_tokens=options["symbols"],
        continuing_subword_prefix="##",
        show_progress=False,
    )
    backend.train_from_iterator((normalise(text.decode()).translate(without) for text in sentences), trainer)
    found = backend.get_vocab(with_added_tokens=False)
    return "\n".join(sorted(found, key=found.__getitem__)).encode()


def _train_byte_bpe(sentences: list[bytes], options: dict[str, Any]) -> bytes:
    """The tokenizer.json. Of equally frequent pairs the trainer joins that of the lowest ids first.

    options: vocab_size; specials: the first pieces.
    """
    import tokenizers

    backend, byte_level = tokenizers.Tokenizer(tokenizers.models.BPE()), tokenizers.pre_tokenizers.ByteLevel
    backend.normalizer = tokenizers.normalizers.NFC()
    backend.pre_tokenizer, backend.decoder = byte_level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=options["vocab_size"],
        min_frequency=2,
        special_tokens=options["specials"],
        initial_alphabet=sorted(byte_level.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(map(bytes.decode, sentences), trainer)
    return str(backend.to_str()).encode()


def train_apart(
    config: VocabConfig, num_characters: int, progress: Progress, sentences: list[bytes], options: dict[str, Any]
) -> bytes:
    """Call `train` in a process of its own, and show its progress. With the first three arguments it is a `Trainer`.

    Raises RuntimeError with the trainer's message, and TokenizerError where the process dies.
    """
    watcher, command = _Watcher(config, num_characters, progress), [sys.executable, "-c", COMMAND, *sys.path]
    process, parts = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE), list[bytes]()
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        answer, log = process.stdout.fileno(), process.stderr.fileno()
        with suppress(BrokenPipeError):  # the process died; that shows below, as there is no answer
            send(process.stdin, sentences, {**options, "minloglevel": 0})
        pipes = {answer, log}
        while pipes:
            for pipe in pipes.intersection(wait(pipes, _TICK_SECONDS)):
                data = os.read(pipe, _READ_BYTES)
                if not data:
                    pipes.remove(pipe)
                elif pipe == log:
                    watcher.feed(data)
                else:
                    parts.append(data)
            progress.advance(0)  # updates the time that is shown
        code = process.wait()
        with suppress(EOFError, pickle.UnpicklingError):  # it died
            result: bytes | Exception = pickle.loads(b"".join(parts))
            if isinstance(result, bytes):
                watcher.finish()
                return result
            if not isinstance(result, MemoryError):  # the error below says what to do
                raise result
        raise _explain_death(code, sum(map(len, sentences)), " ".join(watcher.last_lines))
    finally:
        process.kill()
        with suppress(BrokenPipeError), process:  # closes the pipes, which flushes what was not yet written
            pass


def _explain_death(code: int, num_bytes: int, last_lines: str) -> TokenizerError:
    cause = f"signal {-code}" if code < 0 else f"exit code {code}"
    said = f" and said: {last_lines}" if last_lines else ""
    return TokenizerError(
        f"the process that trains the vocabulary on {num_bytes / 1e6:,.1f} MB of sentences died ({cause}){said}; this "
        "mostly means that memory ran out: try a smaller --sample-bytes, or a machine with more memory"
    )


class _Watcher:
    """Turns the trainer's log into progress."""

    def __init__(self, config: VocabConfig, num_characters: int, progress: Progress) -> None:
        self._config, self._num_characters, self._progress = config, num_characters, progress
        self._log_smallest, self._log_seeds = math.log(_PRUNED_TO * config.vocab_size), 0.0
        self._done, self._total = 0, 0
        self._rest, self.last_lines = b"", deque[str](maxlen=_LINES_KEPT)
        progress.start("normalising text" if config.model_type in SENTENCEPIECE_TYPES else "merging pieces", None, "")

    def feed(self, log: bytes) -> None:
        *lines, self._rest = (self._rest + log).split(b"\n")
        for line in lines:
            self._read(line)

    def finish(self) -> None:
        """Fill the bar: how many rounds there will be is an estimate."""
        self._reach(self._total)

    def _read(self, line: bytes) -> None:
        if b"Extracting seed" in line or b"Making suffix array" in line:
            self._progress.start("finding candidates", None, "")
        elif found := _SEEDS.search(line):
            self._log_seeds = math.log(max(int(found[1]), 1))
            self._total = 100
            self._progress.start("choosing pieces", 100, "%")
        elif found := _ROUND.search(line):  # each round keeps 3/4 of the pieces, so progress is linear in the logarithm
            left = math.log(max(int(found[1]), 1)) - self._log_smallest
            all_rounds = self._log_seeds - self._log_smallest
            self._reach(int(100 * (1 - left / all_rounds)) if all_rounds > 0 else 100)
        elif b"Tokenizing input sentences" in line and self._config.model_type == "bpe":
            self._total = max(self._config.vocab_size - self._num_characters, 1)
            self._progress.start("merging pieces", self._total, "pieces")
        elif found := _MERGES.search(line):
            self._reach(int(found[1]))
        elif not _ORDINARY.match(line):
            self.last_lines.append(line.decode(errors="replace"))

    def _reach(self, done: int) -> None:
        done = min(max(done, self._done), self._total)
        self._progress.advance(done - self._done)
        self._done = done


# ---- the program ----


def send(pipe: IO[bytes], sentences: list[bytes], options: dict[str, Any]) -> None:
    """Give the program its task."""
    pickle.dump((sentences, options), pipe, protocol=5)
    pipe.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this process
    sentences, options = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        result: bytes | Exception = train(sentences, options)
    except (RuntimeError, MemoryError) as error:
        result = error
    sys.stdout.buffer.write(pickle.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # skips the interpreter's shutdown, since the thread still reads stdin


def _end_with_parent() -> None:
    """End this process when the parent closes the pipe."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)
