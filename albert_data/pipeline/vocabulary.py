"""Train a vocabulary on any input that a build reads, in bounded memory.

The corpus is read in parallel as a build reads it; each worker returns the sentences that may still be in
the sample, and counts the characters of all, so what is learnt depends on the documents and the settings alone.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import Any

from albert_data.config import TextConfig, VocabConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import read_documents
from albert_data.corpus.fields import Fields, name_field
from albert_data.corpus.inputs import Input, check_language_field
from albert_data.corpus.layout import advise
from albert_data.errors import InputError, OutputError, TokenizerError
from albert_data.files import (
    hash_file,
    is_regular,
    is_there,
    read_json,
    remove_temporaries,
    replace_files,
    to_json,
)
from albert_data.interrupts import hold_interrupts
from albert_data.pipeline.engine import Engine
from albert_data.pipeline.parts import split_lines
from albert_data.pipeline.plan import MapTask, read_tasks
from albert_data.pipeline.progress import NullProgress, Progress
from albert_data.pipeline.trainer_process import TrainerProcess
from albert_data.pipeline.warming import WARMING_BLOCK, compile_reading, run_once
from albert_data.sentences.text import make_text
from albert_data.tokenizer.alphabet import Alphabet, choose_alphabet, measure_unspaced
from albert_data.tokenizer.counting import CharacterCounter, CharacterCounts, CharacterTotals, NormalRule
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer, load_tokenizer
from albert_data.tokenizer.sampling import SentenceSample, select_sentences
from albert_data.tokenizer.training import TrainedModel, VocabularyTooLarge, train_model

SETTINGS_NAME, PIECES_NAME = "vocab.json", "pieces.txt"
FILES = (MODEL_NAME, PIECES_NAME, SETTINGS_NAME)
ANY = "any"  # in place of a hash: the file itself holds the hashes
_COLUMNS, _INDENT = 80, 11
_MOST = 0.5
_MAX_LISTED = 1000  # lost characters in vocab.json
_SEAL = "settings_sha256"
_SETTINGS_KEYS = {"vocab_size", "model_type", "sampled_sentences", "skipped_bytes"}


@dataclass(frozen=True, kw_only=True)
class SampleTask:
    """A task of reading, and the hash above which its sentences can't be in the sample."""

    task: MapTask
    limit: int

    def describe(self) -> str:
        return self.task.describe()


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Sentences that may be in the sample with their hashes, and what was read for them.

    characters: of all sentences.
    """

    sentences: dict[bytes, int]
    characters: CharacterCounts
    num_documents: int
    text_bytes: int
    damage: Damage


class SampleJob:
    """Reads a task's sentences and returns those under its limit."""

    def __init__(self, text: TextConfig, config: VocabConfig) -> None:
        self._text, self._seed, self._rule = text, config.seed, NormalRule(config.cased)

    def __call__(self, task: SampleTask) -> Candidates:
        damage, counter = Damage(strict=self._text.strict), CharacterCounter(self._rule)
        sentences: dict[bytes, int] = {}
        num_documents = text_bytes = 0
        for block in task.task.read(damage):
            for lines in split_lines(read_documents(block, self._text, damage)):
                text = make_text(lines, self._text)
                sentences |= select_sentences(text, self._seed, task.limit)
                counter.add(text)
                num_documents += len(lines.document_keys)
                text_bytes += len(lines.utf8)
        return Candidates(
            sentences=sentences,
            characters=counter.finish(),
            num_documents=num_documents,
            text_bytes=text_bytes,
            damage=damage,
        )


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What was read: a sample of sentences, and the characters of all. advice: see VocabReport."""

    sentences: list[bytes]
    characters: CharacterCounts
    num_documents: int
    text_bytes: int
    damage: dict[str, int]
    advice: list[str]


@dataclass(frozen=True, kw_only=True)
class VocabReport:
    """What a vocabulary was learnt from.

    unspaced_share: of the corpus' letters, in scripts without spaces; advice: what to change if the corpus was meant to
    be read in another way.
    """

    trained: TrainedModel
    config: VocabConfig
    alphabet: Alphabet
    unspaced_share: float
    num_documents: int
    text_bytes: int
    damage: dict[str, int]
    advice: list[str]

    def describe_choices(self) -> list[str]:
        """Lines on what the corpus decided, 80 columns: characters, dummy prefix."""
        begins, other = ("", "no-") if self.config.dummy_prefix else ("out", "")
        prefix = (
            f"a sentence begins with{begins} a space ({100 * self.unspaced_share:.3g} % of the letters are in scripts "
            f"without spaces); --{other}dummy-prefix changes that"
        )
        return [*_label("characters", self.alphabet.describe()), *_label("prefix", [prefix])]


def _label(name: str, sentences: list[str]) -> list[str]:
    lines = [line for sentence in sentences for line in wrap(sentence, _COLUMNS - _INDENT, break_on_hyphens=False)]
    return [f"{name if number == 0 else '':<{_INDENT}}{line}" for number, line in enumerate(lines)]


def learn_vocabulary(
    inputs: list[Input],
    text: TextConfig,
    config: VocabConfig,
    engine: Engine,
    progress: Progress | None = None,
    *,
    shrink: bool = False,
) -> VocabReport:
    """Sample the sentences of a corpus and train a SentencePiece model on them.

    shrink: take the largest vocabulary that the text supports where that is smaller than asked for.
    Raises InputError for a corpus without documents, TokenizerError where training can't succeed.
    """
    check_language_field(inputs, text)
    progress = progress or NullProgress()
    corpus = _read_corpus(inputs, text, config, engine, progress)
    alphabet, unspaced_share = choose_alphabet(corpus.characters, config), measure_unspaced(corpus.characters)
    if config.dummy_prefix is None:
        config = dataclasses.replace(config, dummy_prefix=unspaced_share <= _MOST)
    size = sum(map(len, corpus.sentences)) / 1e6
    progress.say(
        f"training a {config.model_type} vocabulary of {config.vocab_size:,} pieces on {size:,.1f} MB of sentences"
    )
    trained, config = _train(corpus.sentences, config, alphabet, progress, shrink)
    return VocabReport(
        trained=trained,
        config=config,
        alphabet=alphabet,
        unspaced_share=unspaced_share,
        num_documents=corpus.num_documents,
        text_bytes=corpus.text_bytes,
        damage=corpus.damage,
        advice=corpus.advice,
    )


def _read_corpus(
    inputs: list[Input], text: TextConfig, config: VocabConfig, engine: Engine, progress: Progress
) -> Corpus:
    sample, damage, job = SentenceSample(config.sample_bytes), Damage(strict=text.strict), SampleJob(text, config)
    few_words = SampleTask(task=MapTask(name="", block=WARMING_BLOCK), limit=sample.limit)

    def read_few_words() -> None:
        compile_reading()
        job(few_words)

    run_once(read_few_words, progress)
    progress.start("reading", sum(item.size for item in inputs if item.is_splittable) or None)
    num_documents, text_bytes, totals = 0, 0, CharacterTotals()
    for task, found in engine.run(job, _tasks(inputs, text, sample, damage)):
        sample.add(found.sentences)
        totals.add(found.characters)
        damage.merge(found.damage)
        num_documents += found.num_documents
        text_bytes += found.text_bytes
        progress.advance(task.task.num_bytes, found.text_bytes)
    if not num_documents:
        raise no_document(damage.counts, damage.fields)
    if damage.unlabelled.num_records and not damage.num_labelled:
        raise missing_labels(text, damage.unlabelled)
    return Corpus(
        sentences=sample.sentences(),
        characters=totals.finish(),
        num_documents=num_documents,
        text_bytes=text_bytes,
        damage=dict(damage.counts),
        advice=_advise(num_documents, damage, text, inputs),
    )


def _advise(num_documents: int, damage: Damage, text: TextConfig, inputs: list[Input]) -> list[str]:
    counts = {"documents": num_documents, **damage.layout}
    return advise(counts, dataclasses.asdict(text), [item.path for item in inputs])


def no_document(damage: Counter[str], fields: Fields) -> InputError:
    """What to say of a corpus in which nothing was found."""
    reasons = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in damage.items())
    found = f" ({reasons})" if reasons else ""
    return InputError(f"the corpus holds no document{found}; {fields.describe() or 'give files with text in them'}")


def missing_labels(text: TextConfig, unlabelled: Fields) -> InputError:
    """What to say of a corpus in which no record has the language field."""
    return InputError(
        f"no line has the field {name_field(text.language_field or '')}; the fields are "
        f"{unlabelled.describe_names() or 'not known'}; pass --language-field NAME with the one that names the "
        "language, or leave it out"
    )


def _tasks(inputs: list[Input], text: TextConfig, sample: SentenceSample, damage: Damage) -> Iterator[SampleTask]:
    for task in read_tasks(inputs, text, damage):
        yield SampleTask(task=task, limit=sample.limit)


def _train(
    sentences: list[bytes], config: VocabConfig, alphabet: Alphabet, progress: Progress, shrink: bool
) -> tuple[TrainedModel, VocabConfig]:
    try:
        return train_model(sentences, config, alphabet, _make_trainer(config, alphabet, progress)), config
    except VocabularyTooLarge as error:
        if not shrink:
            raise
        config = dataclasses.replace(config, vocab_size=error.largest)
        progress.say(f"the text supports no more than {error.largest:,} pieces; training so many")
        return train_model(sentences, config, alphabet, _make_trainer(config, alphabet, progress)), config


def _make_trainer(config: VocabConfig, alphabet: Alphabet, progress: Progress) -> TrainerProcess:
    return TrainerProcess(config, len(alphabet.codes), progress)


def claim_folder(folder: Path) -> None:
    """Make the folder of a vocabulary: better to fail before the training than after it.

    Raises OutputError where a file stands in the way that is not of a vocabulary.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        known = _read_hashes(folder)
        for name in FILES:
            path = folder / name
            if is_there(path) and not (is_regular(path) and known.get(name) in (ANY, hash_file(path))):
                raise OutputError(
                    f"{path} was not written by `vocab`, or was changed since, and would be replaced; "
                    "move it away, or name another folder"
                )
        remove_temporaries(folder)
    except OSError as error:
        raise OutputError(f"output {folder} can't be written: {error.strerror}; name another folder") from error


def _read_hashes(folder: Path) -> dict[str, str]:
    """What vocab.json records of the files of a vocabulary: their SHA-256, or ANY of itself."""
    try:
        settings = read_json(folder / SETTINGS_NAME)
    except (OSError, ValueError):
        return {}
    if _SETTINGS_KEYS - settings.keys():
        return {}
    if "files" in settings:
        files, seal = settings["files"], settings.get(_SEAL)
        is_ours = isinstance(files, dict) and seal == _seal(settings)
        return {**files, SETTINGS_NAME: ANY} if is_ours else {}
    try:  # version 0.3.0 recorded no hashes
        model = load_tokenizer(folder / MODEL_NAME, to_encode=False)
    except TokenizerError:
        return {SETTINGS_NAME: ANY}
    return {MODEL_NAME: model.sha256, PIECES_NAME: _hash(_list_pieces(model)), SETTINGS_NAME: ANY}


def is_saved(folder: Path) -> bool:
    """Whether a folder holds a whole vocabulary as `save_vocabulary` wrote it."""
    known = _read_hashes(folder)
    return all(is_regular(folder / name) and known.get(name) in (ANY, hash_file(folder / name)) for name in FILES)


def _list_pieces(tokenizer: Tokenizer) -> bytes:
    return "".join(f"{piece}\n" for piece in tokenizer.pieces).encode()


def _seal(settings: dict[str, Any]) -> str:
    """What tells that no value was edited: the SHA-256 of all others."""
    return _hash(to_json({key: value for key, value in settings.items() if key != _SEAL}))


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()


def _record_characters(alphabet: Alphabet) -> dict[str, Any]:
    """lost: the most frequent of those that are, and how often each occurs in the corpus."""
    return {
        "in_corpus": alphabet.num_characters,
        "with_a_piece": len(alphabet.codes),
        "num_lost": len(alphabet.lost),
        "lost_in_corpus": alphabet.num_lost,
        "lost": [[chr(code), count] for code, count in islice(alphabet.lost.items(), _MAX_LISTED)],
    }


def save_vocabulary(folder: Path, report: VocabReport) -> dict[str, Any]:
    """Write the model, its pieces and the settings to a folder; returns the settings.

    The settings come first: by the hashes in them the other two are known as ours, even if this is killed in between.
    """
    model = report.trained.model
    pieces = _list_pieces(Tokenizer(model, str(folder / MODEL_NAME)))
    settings = {
        **dataclasses.asdict(report.config),
        "documents": report.num_documents,
        "text_bytes": report.text_bytes,
        "sampled_sentences": report.trained.num_sentences,
        "sampled_bytes": report.trained.num_bytes,
        "skipped_sentences": report.trained.num_skipped,
        "skipped_bytes": report.trained.skipped_bytes,
        "characters": _record_characters(report.alphabet),
        "unspaced_share": round(report.unspaced_share, 6),
        "damage": report.damage,
        "files": {MODEL_NAME: _hash(model), PIECES_NAME: _hash(pieces)},
    }
    settings[_SEAL] = _seal(settings)
    claim_folder(folder)
    try:
        with hold_interrupts():
            replace_files(folder, {SETTINGS_NAME: to_json(settings), PIECES_NAME: pieces, MODEL_NAME: model})
    except OSError as error:
        raise OutputError(
            f"the vocabulary can't be written: {folder}: {error.strerror or error}; an older one there is whole: "
            "free some space, or name another folder"
        ) from error
    return settings
