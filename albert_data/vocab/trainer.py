"""The trainer of the library `tokenizers`, made to depend on the text alone. Imports nothing else, so it starts fast.

It joins the most frequent pair of neighbours, as BPE does, and of equally frequent ones that of the lowest ids. Left to
itself it numbers the forms of characters inside words ("##a") as a hash table yields them, differently each time. Here
they are special pieces, which it numbers in the order in which they are given.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

import sentencepiece


def train_wordpiece(sentences: list[bytes], options: dict[str, Any]) -> bytes:
    """The pieces, a line each.

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


# ---- sentencePiece's trainer, or that of `tokenizers`, in this process or as a program of its own ----
#
# The program reads a pickle of sentences and options from stdin, after the pickle's length. It writes a pickle of the
# model, or of the trainer's error, to stdout, and the trainer's log to stderr. The parent keeps stdin open, and the
# program ends when it is closed, as it is when the parent dies. It imports only what it needs, so it starts at once.

Trainer = Callable[[list[bytes], dict[str, Any]], bytes]
# Its arguments are the parent's sys.path, so that both import from the same folders.
COMMAND = "import sys; sys.path[:] = sys.argv[1:]; from albert_data.vocab.trainer import main; main()"
_LENGTH_BYTES = 8


def train(sentences: list[bytes], options: dict[str, Any]) -> bytes:
    """The serialised model, or the pieces of a WordPiece vocabulary (options with "symbols").

    Raises RuntimeError with the trainer's message, or MemoryError.
    """
    if "symbols" in options:
        return train_wordpiece(sentences, options)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(sentence_iterator=iter(sentences), model_writer=model, **options)
    return model.getvalue()


def send(pipe: IO[bytes], sentences: list[bytes], options: dict[str, Any]) -> None:
    """Give the program its task."""
    task = pickle.dumps((sentences, options), protocol=5)
    pipe.write(len(task).to_bytes(_LENGTH_BYTES, "little"))
    pipe.write(task)
    pipe.flush()


def read_answer(answer: bytes) -> bytes | None:
    """The model that the program answered with, None if it died. Raises what `train` raised there."""
    try:
        result: bytes | Exception = pickle.loads(answer)
    except (EOFError, pickle.UnpicklingError):
        return None
    if isinstance(result, Exception):
        raise result
    return result


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this process
    stdin = sys.stdin.buffer
    sentences, options = pickle.loads(stdin.read(int.from_bytes(stdin.read(_LENGTH_BYTES), "little")))
    threading.Thread(target=_end_with, args=(stdin,), daemon=True).start()
    try:
        result: bytes | Exception = train(sentences, options)
    except (RuntimeError, MemoryError) as error:
        result = error
    sys.stdout.buffer.write(pickle.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # skips the interpreter's shutdown, since the thread still reads stdin


def _end_with(pipe: IO[bytes]) -> None:
    """End this process when the other side closes the pipe."""
    os.read(pipe.fileno(), 1)
    os._exit(1)
