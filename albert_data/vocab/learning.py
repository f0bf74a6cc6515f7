"""Train a vocabulary on any input that a build reads, in bounded memory: learning -> training -> trainer (a process).

The corpus is read in parallel, as a build reads it. Each worker returns candidates, the sentences that may be in the
sample (on a cluster, the path of a file with them), and the counts of all characters. So the vocabulary depends on the
documents and the settings alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from albert_data.clean.documents import batch_documents, clean_documents
from albert_data.config import AS_IS, BYTE_BPE, NFC, SENTENCEPIECE_TYPES, WORDPIECE, TextConfig, VocabConfig
from albert_data.corpus.conditions import EXCLUDED
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import name_field
from albert_data.corpus.inputs import (
    Input,
    check_fields,
    check_reach,
    check_where,
    count_bytes,
    list_samples,
    list_texts,
)
from albert_data.corpus.layout import advise
from albert_data.corpus.sources import advise_names
from albert_data.corpus.tasks import WARMING_BLOCK, ReadTask, compile_reading, read_tasks
from albert_data.errors import InputError
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.engine import Engine, PreparedJob, spans_machines
from albert_data.jobs.progress import NullProgress, Progress
from albert_data.sentences.text import find_sentences
from albert_data.shards.advice import advise_inputs, check_losses, list_damaged
from albert_data.storage import find_storage
from albert_data.survey.sorted_columns import map_u64
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.sentencepiece.albert import normalise_text, normalise_text_of
from albert_data.tokenizer.tokenizer_json import import_tokenizers
from albert_data.vocab.alphabet import Alphabet, choose_alphabet, measure_unspaced
from albert_data.vocab.candidates import take_candidates, write_candidates
from albert_data.vocab.counting import NUM_CODES, BertNormalRule, CharacterCounts, NormalCounter, NormalRule, RawCounter
from albert_data.vocab.report import VocabReport
from albert_data.vocab.sampling import SentenceSample, select_sentences
from albert_data.vocab.scripts import advise_scripts, describe_removed
from albert_data.vocab.trainer import TrainerProcess
from albert_data.vocab.training import TrainedModel, VocabularyTooLarge, train_model

# The sample is chosen from candidates of so many times its bytes: enough if a sixteenth of the corpus is distinct text.
_CANDIDATES = 16
_MOST_UNSPACED = 0.5  # a model gets no dummy prefix if more of the letters are in scripts without spaces


@dataclass(frozen=True, kw_only=True)
class SampleTask:
    """A task to read, and the largest hash that a sentence in the sample can have at this time."""

    task: ReadTask
    limit: int

    def describe(self) -> str:
        return self.task.describe()


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What a task has read.

    sentences: the candidates with their hashes, or the path of the file that holds them
    characters: of all sentences, not of these alone
    raw: the same before a normalization of the config, empty where there is none
    """

    sentences: dict[bytes, int] | Path
    characters: CharacterCounts
    raw: CharacterCounts
    num_documents: int
    text_bytes: int
    damage: Damage


class SampleJob:
    """Reads the documents of a task, and returns the sentences whose hashes are within its limit.

    folder: where a file with them is written; None to return the sentences themselves.
    repeated: the file with the hashes of lines to remove, None to remove none.
    """

    def __init__(
        self, text: TextConfig, config: VocabConfig, folder: Path | None = None, repeated: Path | None = None
    ) -> None:
        self._text, self._config, self._folder, self._repeated = text, config, folder, repeated

    def __call__(self, task: SampleTask) -> Candidates:
        damage, config = Damage(strict=self._text.strict), self._config
        # BERT's normaliser is applied to the counts (learn_vocabulary), so that no worker needs the library.
        is_raw = config.model_type not in SENTENCEPIECE_TYPES
        counter, raw = RawCounter() if is_raw else NormalCounter(NormalRule(config.cased)), RawCounter()
        sentences: dict[bytes, int] = {}
        num_documents = text_bytes = 0
        for block in task.task.read(damage):
            repeated = None if self._repeated is None else map_u64(self._repeated)
            for lines in batch_documents(clean_documents(block, task.task.text, damage, repeated)):
                text = find_sentences(lines, task.task.text)
                if config.normalization != "none":
                    raw.add(text)
                    text = normalise_text_of(text)
                sentences |= select_sentences(text, config.seed, task.limit)
                counter.add(text)
                num_documents += len(lines.document_keys)
                text_bytes += len(lines.utf8)
        return Candidates(
            sentences=sentences if self._folder is None else write_candidates(self._folder, task.task.name, sentences),
            characters=counter.finish(),
            raw=raw.finish(),
            num_documents=num_documents,
            text_bytes=text_bytes,
            damage=damage,
        )


def compile_sampling(job: SampleJob, text: TextConfig) -> None:
    """Run the kernels of a SampleJob on a few words."""
    compile_reading()
    task = ReadTask(name="", text=text, block=WARMING_BLOCK)
    job(SampleTask(task=task, limit=SentenceSample(1).limit))


@dataclass(kw_only=True)
class SampledCorpus:
    """What was read: a sample of the sentences, and how often each character occurs in all of them."""

    sample: SentenceSample
    damage: Damage
    totals: np.ndarray
    raw: np.ndarray
    num_documents: int = 0
    text_bytes: int = 0

    def add(self, found: Candidates) -> None:
        sentences = found.sentences
        self.sample.add(sentences if isinstance(sentences, dict) else take_candidates(sentences))
        found.characters.add_to(self.totals)
        found.raw.add_to(self.raw)
        self.damage.merge(found.damage)
        self.num_documents += found.num_documents
        self.text_bytes += found.text_bytes


def learn_vocabulary(
    inputs: list[Input],
    text: TextConfig,
    config: VocabConfig,
    engine: Engine,
    progress: Progress | None = None,
    *,
    shrink: bool = False,
    shared: Path | None = None,
    repeated: Path | None = None,
    allow_loss: bool = False,
) -> VocabReport:
    """Sample the sentences of a corpus and train a model on them.

    shrink: if the text supports fewer pieces than asked for, train as many as it supports.
    shared: a folder that every machine sees, in which tasks leave their candidates. Without it they are returned.
    repeated: the file with the hashes of lines to remove, None to remove none.
    allow_loss: train also if over half of the corpus, or of a file that the user named, can't be read.
    Raises InputError for a corpus without documents, TokenizerError if the training fails.
    """
    check_fields(inputs, text)
    check_reach(inputs, spans_machines=spans_machines(engine))
    progress = progress or NullProgress()
    rule = BertNormalRule(config.cased) if config.model_type == WORDPIECE else None
    is_bytes = config.model_type == BYTE_BPE
    if is_bytes:
        import_tokenizers("--model-type byte-bpe")
    reader = _CorpusReader(inputs, text, config, engine, progress, shared, repeated, allow_loss)
    corpus = reader.read()
    sentences, characters = corpus.sample.sentences(), CharacterCounts.of(corpus.totals)
    unspaced_share = measure_unspaced(characters)
    normalise = None if rule is None else rule.normalise
    raw = CharacterCounts.of(corpus.raw) if rule is None else characters
    option = "--uncased" if rule else f"--normalization {config.normalization}"
    removed = describe_removed(raw, normalise or normalise_text, option)
    if rule is not None:
        characters = rule.apply(characters)
    elif config.dummy_prefix is None and not is_bytes:
        config = dataclasses.replace(config, dummy_prefix=unspaced_share <= _MOST_UNSPACED)
    alphabet = Alphabet.of_all(characters) if is_bytes else choose_alphabet(characters, config, normalise)
    size = sum(map(len, sentences)) / 1e6
    progress.say(
        f"training a {config.model_type} vocabulary of {config.vocab_size:,} pieces on {size:,.1f} MB of sentences"
    )
    trained, config = _train(sentences, config, alphabet, progress, shrink)
    pieces = Tokenizer(trained.model, "the vocabulary").pieces
    return VocabReport(
        trained=trained,
        config=config,
        alphabet=alphabet,
        unicode=NFC if all(one.unicode == NFC for one in list_texts(inputs, text)) else AS_IS,
        unspaced_share=unspaced_share,
        num_documents=corpus.num_documents,
        text_bytes=corpus.text_bytes,
        damage=dict(corpus.damage.counts),
        removed=corpus.damage.removed,
        advice=reader.advise(corpus),
        scripts=removed + ([] if is_bytes else advise_scripts(pieces, characters, config, normalise)),
    )


@dataclass(frozen=True)
class _CorpusReader:
    """Reads a corpus. shared, repeated, allow_loss: see `learn_vocabulary`."""

    inputs: list[Input]
    text: TextConfig
    config: VocabConfig
    engine: Engine
    progress: Progress
    shared: Path | None
    repeated: Path | None
    allow_loss: bool

    def read(self) -> SampledCorpus:
        num_bytes, sample_bytes = count_bytes(self.inputs), self.config.sample_bytes
        # Without a share, the first tasks would return all of their sentences, since the sample is not full yet.
        share = min(_CANDIDATES * sample_bytes / num_bytes, 1.0) if num_bytes else 1.0
        corpus = self._fill(SentenceSample(sample_bytes, share))
        if corpus.sample.is_full:
            return corpus
        self.progress.say("the corpus repeats itself or holds little text; it is read again, for more sentences")
        return self._fill(SentenceSample(sample_bytes))

    def _fill(self, sample: SentenceSample) -> SampledCorpus:
        totals, raw = np.zeros((2, NUM_CODES), np.int64)
        corpus = SampledCorpus(sample=sample, damage=Damage(strict=self.text.strict), totals=totals, raw=raw)
        warming = partial(compile_sampling, SampleJob(self.text, self.config, repeated=self.repeated), self.text)
        compile_with_notice(warming, self.progress.say)
        places = list_samples(self.inputs)
        if self.shared is not None:
            find_storage(self.shared).make_folder(self.shared)
            places += [str(write_candidates(self.shared, "begin", {}))]  # a file that every machine has to see
        job = SampleJob(self.text, self.config, self.shared, self.repeated)
        prepared = PreparedJob(job=job, name="read", prepare=warming, places=tuple(places))
        self.progress.start("reading", count_bytes(self.inputs))
        # Tasks are made while others run: later ones get a lower limit, since the sample fills.
        here = Damage(strict=self.text.strict)  # a thread counts in it, so it is added at the end
        plan = read_tasks(self.inputs, self.text, here, lambda task: spans_machines(self.engine))
        tasks = (SampleTask(task=task, limit=sample.limit) for task in plan)
        for task, found in self.engine.run(prepared, tasks):
            corpus.add(found)
            self.progress.advance(task.task.num_bytes, found.text_bytes)
        corpus.damage.merge(here)
        check_found(self.inputs, self.text, corpus.damage, corpus.num_documents, allow_loss=self.allow_loss)
        return corpus

    def advise(self, corpus: SampledCorpus) -> list[str]:
        """Options that would read the corpus better, a sentence each."""
        damage, text_field = corpus.damage, None if self.inputs[0].source else self.text.text_field
        counts = {"documents": corpus.num_documents, **damage.layout}
        found = advise(counts, dataclasses.asdict(self.text), [item.path for item in self.inputs])
        return [
            *(one.text for one in found),
            *advise_names(damage.names),
            *advise_inputs(list_damaged(damage.inputs), text_field),
        ]


def check_found(
    inputs: list[Input], text: TextConfig, damage: Damage, num_documents: int, *, allow_loss: bool = False
) -> None:
    """Raise InputError for a corpus without a document, of which much is lost, or without a field of the settings."""
    check_where(inputs, text, damage)
    if not num_documents:
        reasons = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in damage.counts.items())
        found = f" ({reasons})" if reasons else ""
        oddities = [f"{item.path}: {item.oddity}" for item in inputs if item.oddity]
        advice = "check --where" if EXCLUDED in damage.counts else "give files with text in them"
        advice = "check --delimiter and --quoting" if "malformed_row" in damage.counts else advice
        advice = oddities[0] if oddities else advice
        raise InputError(f"the corpus holds no document{found}; {damage.fields.describe() or advice}")
    if damage.unlabelled.num_records and not damage.num_labelled:
        raise InputError(
            f"no line has the field {name_field(text.language_field or '')}; the fields are "
            f"{damage.unlabelled.describe_names() or 'not known'}; pass --language-field NAME with the one that names "
            "the language, or leave it out"
        )
    if not allow_loss:
        check_losses(inputs, text, damage)


def _train(
    sentences: list[bytes], config: VocabConfig, alphabet: Alphabet, progress: Progress, shrink: bool
) -> tuple[TrainedModel, VocabConfig]:
    try:
        trainer = TrainerProcess(config, len(alphabet.codes), progress)
        return train_model(sentences, config, alphabet, trainer), config
    except VocabularyTooLarge as error:
        if not shrink:
            raise
        progress.say(f"the text supports no more than {error.largest:,} pieces; training that many")
        config = dataclasses.replace(config, vocab_size=error.largest)
        return _train(sentences, config, alphabet, progress, shrink=False)
