"""The readers of SentencePiece models, of checkpoints, and of Hugging Face folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np

from albert_data.errors import TokenizerError
from albert_data.inspect.statistics import find_text_words
from albert_data.interop.initial import load_initial
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.huggingface import tokenizer_files
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.train.checkpoint import list_checkpoints, load_checkpoint, load_model
from albert_data.train.config import AlbertConfig
from albert_data.train.device import ALONE, choose_precision
from albert_data.train.folder import load_config, read_run_file
from albert_data.train.loader import ShardLoader
from albert_data.train.state import restore_newest, start_session
from reliability.cases import Case, Reader
from reliability.format_mutators import mutate_model, mutate_safetensors
from reliability.json_mutators import mutate_json
from reliability.oddities import model_oddities, plan_oddities, safetensors_oddities
from reliability.read_shards import try_ways
from reliability.sound import SENTENCES, Sound

TEXTS = [*SENTENCES, "", " ", "a", "▁", "the the the", "\u3000", "[MASK] <pad>", "x" * 300, "naïve é"]


def model_readers(sound: Sound) -> list[Reader]:
    """Return the readers of tokenizers and of weights."""
    reads = ReadWeights(sound)
    checkpoint, config = list_checkpoints(sound.run)[-1], sound.exported / "config.json"
    seeds = {
        name: (checkpoint / name).read_bytes() for name in ("model.safetensors", "training.safetensors", "state.json")
    }
    weights = (sound.exported / "model.safetensors").read_bytes()
    unigram, bpe, folding = (path.read_bytes() for path in (sound.unigram, sound.bpe, sound.folding))

    def mutate_object(rng: Random, data: bytes, others: object) -> bytes:
        return mutate_json(rng, data)

    def make(name: str, share: int, seed: bytes, read: Callable[[Case, bytes, Path], None]) -> Reader:
        is_json = seed.startswith(b"{")
        return Reader(
            name=name,
            share=share,
            seeds=[seed],
            read=read,
            mutate=mutate_object if is_json else mutate_safetensors,
            oddities=plan_oddities() if is_json else safetensors_oddities(seed),
        )

    return [
        Reader(
            name="model",
            share=80,
            seeds=[unigram, unigram, bpe, bpe, folding],
            mutate=mutate_model,
            read=read_model,
            oddities=model_oddities(unigram),
        ),
        *(make(name, 40, seed, reads.checkpoint) for name, seed in seeds.items()),
        make("config.json", 30, config.read_bytes(), reads.exported),
        make("exported weights", 20, weights, reads.exported),
    ]


def read_model(case: Case, data: bytes, folder: Path) -> None:
    """Load a tokenizer, use all of its methods, and export it in some cases."""
    path = folder / "spiece.model"
    path.write_bytes(data)
    tokenizer = load_tokenizer(folder if case.number % 2 else path)
    ids, offsets = tokenizer.encode(TEXTS)
    assert len(offsets) == len(TEXTS) + 1
    find_words(tokenizer, ids)
    tokenizer.decode(ids)
    tokenizer.normalise(TEXTS[0])
    (
        len(tokenizer.pieces),
        tokenizer.word_rule().starts.sum(),
        tokenizer.ordinary_ids.sum(),
        tokenizer.specials.to_dict(),
    )
    if case.random("ways").random() < 0.2:
        with suppress(TokenizerError):  # transformers may not support this tokenizer
            tokenizer_files(tokenizer, max_len=64)


def find_words(tokenizer: Tokenizer, ids: np.ndarray) -> None:
    """Check that text gave no special piece, and use what finds words."""
    assert not tokenizer.specials.is_special[ids].any()
    find_text_words(tokenizer)
    with suppress(TokenizerError):  # pieces may not show where words begin
        tokenizer.check_words()


class ReadWeights:
    """Loads a copy of a valid run or export in which one file is replaced."""

    def __init__(self, sound: Sound) -> None:
        self._sound = sound
        config, stored = load_config(sound.run), read_run_file(sound.run)
        shards, precision = open_shards(sound.shards), choose_precision("fp32", "cpu")
        self._session = start_session(config, AlbertConfig(**stored["model"]), precision, ALONE, stored["identity"])
        self._loader = ShardLoader(shards, batch_tokens=config.batch_tokens)

    def checkpoint(self, case: Case, data: bytes, folder: Path) -> None:
        newest = list_checkpoints(self._sound.run)[-1]
        run = folder / "run"
        path = Path(shutil.copytree(newest, run / "checkpoints" / newest.name))
        shutil.copy(self._sound.run / "run.json", run)
        (path / case.reader.name).write_bytes(data)
        try_ways(
            (
                lambda: load_checkpoint(path),
                lambda: load_model(path),
                lambda: load_initial(run),
                lambda: restore_newest(self._session, self._loader, run),
            )
        )

    def exported(self, case: Case, data: bytes, folder: Path) -> None:
        out = Path(shutil.copytree(self._sound.exported, folder / "model"))
        name = case.reader.name if case.reader.name == "config.json" else "model.safetensors"
        (out / name).write_bytes(data)
        load_initial(out, self._sound.shards)
