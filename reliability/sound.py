"""Makes the valid files that are mutated: a corpus, models, a build, stopped builds, a training run, its export.

`python -m reliability.sound FOLDER` makes them in a separate process, since a process that has trained can't be forked
safely. They are small, so that most mutations hit something that matters, and a case takes milliseconds.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import sentencepiece

from albert_data.config import BuildConfig, ExampleConfig
from albert_data.corpus.mixtures import find_sources
from albert_data.pipeline.build import BuildReport, build_shards
from albert_data.tokenizer.model import Tokenizer, load_tokenizer

SENTENCES = [
    "The river runs down from the mountain, and people walk along the water.",
    'Mr. Smith said: "I know the way to the city (about 3.5 km)."',
    "What did she find there? Nothing at all!",
    "They made new words, e.g. in the U.S.A. and elsewhere.",
    "Snow fell on the 12th of May 2021; nobody was prepared.",
    "我们今天学习中国的语言。老师在城市里看书！",
    "Naïve readers of the émigré's book agreed with it.",
    "Each of them could see the other side of the world.",
]
NUM_DOCUMENTS = 12
STEPS = 4


@dataclass(frozen=True, kw_only=True)
class Sound:
    """The paths of the valid files."""

    folder: Path

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus.txt"

    @property
    def unigram(self) -> Path:
        return self.folder / "unigram" / "spiece.model"

    @property
    def folding(self) -> Path:
        """A model whose normalisation replaces characters."""
        return self.folder / "folding" / "spiece.model"

    @property
    def bpe(self) -> Path:
        return self.folder / "bpe" / "spiece.model"

    @property
    def shards(self) -> Path:
        return self.folder / "shards"

    @property
    def half_mapped(self) -> Path:
        """A build that was stopped before its shards were made. It had no --tokenizer, so it has a vocabulary."""
        return self.folder / "half-mapped"

    @property
    def half_reduced(self) -> Path:
        """A build that was stopped after some of its shards were made."""
        return self.folder / "half-reduced"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def exported(self) -> Path:
        return self.folder / "exported"


class InlineEngine:
    """Runs tasks in this process. most: after so many results it stops as by Ctrl-C; None: it does not stop."""

    def __init__(self, most: int | None = None) -> None:
        self._left = most

    def run(self, job: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        for task in tasks:
            if self._left == 0:
                raise KeyboardInterrupt
            yield task, job(task)
            self._left = None if self._left is None else self._left - 1


def make_sound(folder: Path) -> Sound:
    """Make all sound files in a process of its own."""
    made = subprocess.run([sys.executable, "-m", "reliability.sound", str(folder)], capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"the sound files can't be made:\n{made.stderr}")
    return Sound(folder=folder)


def build_config(**settings: Any) -> BuildConfig:
    """Return a config with short rows, so that a small corpus has many."""
    examples = ExampleConfig(max_seq_len=settings.pop("max_seq_len", 32))
    return BuildConfig(examples=examples, num_shards=2, **settings)


def write_documents(seed: int = 0) -> bytes:
    """Return a corpus as text: documents of a few lines with a blank line after each."""
    rng = Random(seed)
    documents = ("\n".join(rng.choices(SENTENCES, k=rng.randint(2, 6))) for _ in range(NUM_DOCUMENTS))
    return "".join(f"Document {number}.\n{text}\n\n" for number, text in enumerate(documents)).encode()


def train_tokenizer(path: Path, **settings: Any) -> None:
    """Write a small SentencePiece model with the special pieces of ALBERT."""
    model, rng = io.BytesIO(), Random(0)
    options: dict[str, Any] = {
        "vocab_size": 150,
        "hard_vocab_limit": False,
        "character_coverage": 1.0,
        "pad_id": 0,
        "unk_id": 1,
    }
    options |= {"bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"], "minloglevel": 2}
    sentences = (" ".join(rng.sample(SENTENCES, 3)) for _ in range(300))
    options |= {"num_threads": 1, "sentence_iterator": sentences, "model_writer": model} | settings
    sentencepiece.SentencePieceTrainer.train(**options)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(model.getvalue())


def run_build(names: Path, out: Path, tokenizer: Tokenizer | None, most: int | None = None, **how: Any) -> BuildReport:
    """Build like the command, in this process."""
    overwrite, config = how.pop("overwrite", False), how.pop("config", build_config())
    inputs = find_sources([str(names)], text=config.text)
    return build_shards(inputs, out, tokenizer, config, InlineEngine(most), overwrite=overwrite)


def stop_build(names: Path, out: Path, tokenizer: Tokenizer | None, most: int) -> None:
    """Build until `most` tasks are done."""
    try:
        run_build(names, out, tokenizer, most)
    except KeyboardInterrupt:
        return
    raise RuntimeError(f"a build was to stop after {most} tasks, and did not")


def train_run(sound: Sound) -> None:
    """Train a model of a few thousand weights for a few steps, and export it."""
    import torch

    from albert_data.interop.huggingface import export_run
    from albert_data.train import loop
    from albert_data.train.config import AlbertConfig, TrainConfig
    from albert_data.train.model import Albert
    from albert_data.train.state import Initial

    torch.set_num_threads(1)
    pieces = load_tokenizer(sound.shards / "tokenizer", to_encode=False).vocab_size
    sizes: dict[str, Any] = {"embedding_size": 8, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "ffn_size": 32}
    shape = AlbertConfig(vocab_size=pieces, max_positions=64, **sizes)
    often: dict[str, Any] = {"eval_every": 2, "save_every": 2, "log_every": 1, "eval_rows": 8}
    config = TrainConfig(preset="tiny", steps=STEPS, batch_tokens=128, device="cpu", **often)
    initial = Initial(model=Albert(shape), tokenizer_sha256=None, origin=Path("nowhere"))
    loop.train(sound.shards, sound.run, config, initial=initial)
    export_run(sound.run, sound.exported)


def main(folder: Path) -> None:
    sound = Sound(folder=folder)
    folder.mkdir(parents=True, exist_ok=True)
    sound.corpus.write_bytes(write_documents())
    train_tokenizer(sound.unigram, normalization_rule_name="identity")
    train_tokenizer(sound.folding, normalization_rule_name="nmt_nfkc_cf")
    train_tokenizer(sound.bpe, model_type="bpe", normalization_rule_name="identity", byte_fallback=True, vocab_size=400)
    tokenizer = load_tokenizer(sound.unigram)
    run_build(sound.corpus, sound.shards, tokenizer)
    stop_build(sound.corpus, sound.half_mapped, None, most=2)
    stop_build(sound.corpus, sound.half_reduced, tokenizer, most=2)
    train_run(sound)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
