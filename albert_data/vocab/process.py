"""The trainer of SentencePiece, and a process of its own to run it in.

SentencePiece trains for minutes inside one call, which can't be interrupted. In a process of its own, Ctrl-C ends the
process, and if memory runs out the system kills that process alone. The process is not forked: OpenMP threads, which
the trainer uses, don't survive a fork. So it runs `main` in a new Python:

    stdin     a pickle: sentences and options. The parent keeps stdin open, and the process ends when it is closed, as
              it is when the parent dies
    stdout    a pickle of the model, or of the trainer's error
    stderr    the trainer's log, errors alone
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from subprocess import PIPE
from typing import IO, Any

import sentencepiece

from albert_data.errors import TokenizerError
from albert_data.jobs.progress import Progress

Trainer = Callable[[list[bytes], dict[str, Any]], bytes]
# Its arguments are the parent's sys.path, so that both import from the same folders.
COMMAND = "import sys; sys.path[:] = sys.argv[1:]; from albert_data.vocab.process import main; main()"
_TICK_SECONDS = 0.5
_LINES_KEPT = 3
_ERRORS_ALONE = 2  # minloglevel


def train(sentences: list[bytes], options: dict[str, Any]) -> bytes:
    """The serialised model. Raises RuntimeError with the trainer's message, or MemoryError."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(sentence_iterator=iter(sentences), model_writer=model, **options)
    return model.getvalue()


def train_apart(progress: Progress, sentences: list[bytes], options: dict[str, Any]) -> bytes:
    """Call `train` in a process of its own. With a progress given it is a `Trainer`.

    Raises RuntimeError with the trainer's message, and TokenizerError where the process dies.
    """
    progress.start("choosing pieces", None, "")
    command = [sys.executable, "-c", COMMAND, *sys.path]
    process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    stdin, process.stdin = process.stdin, None  # `communicate` would close it, which ends the process
    assert stdin is not None
    try:
        with suppress(BrokenPipeError):  # the process died; that shows below, as there is no answer
            send(stdin, sentences, {**options, "minloglevel": _ERRORS_ALONE})
        while True:
            try:
                answer, log = process.communicate(timeout=_TICK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                progress.advance(0)  # updates the time that is shown
        with suppress(EOFError, pickle.UnpicklingError):  # it died
            result: bytes | Exception = pickle.loads(answer)
            if isinstance(result, bytes):
                return result
            if not isinstance(result, MemoryError):  # the error below says what to do
                raise result
        raise _explain_death(process.returncode, sum(map(len, sentences)), log)
    finally:
        process.kill()
        with suppress(BrokenPipeError), process, stdin:  # closes the pipes, which flushes what was not yet written
            pass


def _explain_death(code: int, num_bytes: int, log: bytes) -> TokenizerError:
    cause = f"signal {-code}" if code < 0 else f"exit code {code}"
    last_lines = log.decode(errors="replace").split("\n")[-_LINES_KEPT:]
    said = f" and said: {' '.join(last_lines).strip()}" if log else ""
    return TokenizerError(
        f"the process that trains the vocabulary on {num_bytes / 1e6:,.1f} MB of sentences died ({cause}){said}; this "
        "mostly means that memory ran out: try a smaller --sample-bytes, or a machine with more memory"
    )


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
