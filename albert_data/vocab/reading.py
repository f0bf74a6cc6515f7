"""Read a corpus for a vocabulary: a sample of its sentences, and how often each character occurs in all of them.

The corpus is read in parallel, as a build reads it. Each task returns candidates, the sentences that may be in the
sample, and the counts of all characters. With an alpha the corpus is read once before, to count the bytes of each
source, which then has a sample of its own. On a cluster, candidates go through files, as Ray carries no text. A file is
an Arrow stream of one batch: source codes (uint32), hashes (uint64), sentences (binary). The process that trains the
vocabulary removes each as it reads it. Every attempt of a task writes a file of its own, because an attempt that Ray
has given up may still run, and write late.

    OUT/.build/candidates/   of a build without --tokenizer
    DIR/.vocab/              of `vocab`, see folder.py
"""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow

from albert_data.clean.documents import batch_documents, clean_documents
from albert_data.config import BuildConfig, TextConfig, VocabConfig
from albert_data.corpus.conditions import EXCLUDED
from albert_data.corpus.damage import NAMED, OUTSIDE_SAMPLE, SHORT, Damage
from albert_data.corpus.fields import name_field
from albert_data.corpus.inputs import Input, check_where, count_bytes, list_samples
from albert_data.corpus.sources import share_tokens
from albert_data.corpus.tasks import WARMING_BLOCK, ReadTask, compile_reading, read_tasks
from albert_data.data import Text
from albert_data.errors import InputError
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.engine import Engine, PreparedJob, spans_machines
from albert_data.jobs.progress import Progress
from albert_data.sentences.text import find_sentences
from albert_data.shards.advice import check_losses
from albert_data.storage import find_storage
from albert_data.storage.files import read_bytes, write_bytes
from albert_data.survey.mixed_sources import list_languages, list_sources
from albert_data.survey.sorted_columns import map_u64
from albert_data.text.languages import encode_source, name_sources
from albert_data.text.wording import list_some
from albert_data.tokenizer.sentencepiece.albert import normalise_text_of
from albert_data.vocab.counting import NUM_CODES, CharacterCounts, NormalCounter, NormalRule
from albert_data.vocab.sampling import SentenceSample, select_sentences

# The sample is chosen from candidates of so many times its bytes: enough if a sixteenth of the corpus is distinct text.
_CANDIDATES = 16
_ALL = 0  # the source code of all text where sources are alike
_SHOWN = 12  # sources
Found = dict[int, dict[bytes, int]]  # by source code


@dataclass(frozen=True, kw_only=True)
class SampleTask:
    """A task to read, and of each source with a sample the largest hash that a sentence in it can have at this time."""

    task: ReadTask
    limits: Mapping[int, int]

    def describe(self) -> str:
        return self.task.describe()


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What a task has read."""

    sentences: Found | Path  # the candidates of each source with their hashes, or the path of the file that holds them
    characters: CharacterCounts  # of all sentences, not of these alone
    sizes: Counter[int]  # bytes of all sentences of each source
    num_documents: int
    text_bytes: int
    damage: Damage


@dataclass(frozen=True)
class SampleJob:
    """Reads the documents of a task, and returns the sentences whose hashes are within its limit."""

    text: TextConfig
    config: VocabConfig
    folder: Path | None = None  # where a file with them is written; None to return the sentences themselves
    repeated: Path | None = None  # the file with the hashes of lines to remove, None to remove none

    def __call__(self, task: SampleTask) -> Candidates:
        damage, config = Damage(strict=self.text.strict), self.config
        counter = NormalCounter(NormalRule(config.cased))
        sentences, sizes = defaultdict[int, dict[bytes, int]](dict), Counter[int]()
        num_documents = text_bytes = 0
        for block in task.task.read(damage):
            repeated = None if self.repeated is None else map_u64(self.repeated)
            for lines in batch_documents(clean_documents(block, task.task.text, damage, repeated)):
                text = find_sentences(lines, task.task.text)
                if config.normalization != "none":
                    text = normalise_text_of(text)
                for source, part in [(_ALL, text)] if config.alpha is None else divide_text(text, task.task):
                    if source in task.limits:
                        sentences[source] |= select_sentences(part, config.seed, task.limits[source])
                    sizes[source] += int((part.sentence_ends - part.sentence_begins).sum())
                    counter.add(part)
                num_documents += len(lines.document_keys)
                text_bytes += len(lines.utf8)
        return Candidates(
            sentences=sentences if self.folder is None else write_candidates(self.folder, task.task.name, sentences),
            characters=counter.finish(),
            sizes=sizes,
            num_documents=num_documents,
            text_bytes=text_bytes,
            damage=damage,
        )


def divide_text(text: Text, task: ReadTask) -> Iterator[tuple[int, Text]]:
    """The sentences of each source, by its code: of a mixture its number."""
    code, codes = encode_source(task.text.language), text.columns.source_codes
    if codes is None or task.source is not None:
        codes = np.full(len(text.document_keys), task.source.number if task.source else code, np.uint32)
    of_sentences = np.repeat(codes, np.diff(text.document_offsets))
    for code in np.unique(codes).tolist():
        own = of_sentences == code
        yield code, replace(text, sentence_begins=text.sentence_begins[own], sentence_ends=text.sentence_ends[own])


def compile_sampling(job: SampleJob, text: TextConfig) -> None:
    """Run the kernels of a SampleJob on a few words."""
    compile_reading()
    task = ReadTask(name="", text=replace(text, min_chars=None), block=WARMING_BLOCK)
    job(SampleTask(task=task, limits=dict.fromkeys((_ALL, encode_source(text.language)), SentenceSample(1).limit)))


def write_candidates(folder: Path, task_name: str, sentences: Found) -> Path:
    """Write the candidates of a task, with their hashes, to a new file."""
    path = folder / f"{task_name}-{secrets.token_hex(8)}.candidates"
    rows = [(source, hashed, sentence) for source, found in sentences.items() for sentence, hashed in found.items()]
    kinds = pyarrow.uint32(), pyarrow.uint64(), pyarrow.large_binary()
    columns = [pyarrow.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    batch = pyarrow.record_batch(columns, ["source", "hash", "sentence"])
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    write_bytes(path, sink.getvalue())
    return path


def take_candidates(path: Path) -> Found:
    """Read the candidates of a task and remove the file."""
    columns = pyarrow.ipc.open_stream(read_bytes(path)).read_all().columns
    find_storage(path).remove(path)
    found: Found = {}
    for source, hashed, sentence in zip(*(column.to_pylist() for column in columns), strict=True):
        found.setdefault(source, {})[sentence] = hashed
    return found


@dataclass(kw_only=True)
class SampledCorpus:
    """What was read. samples: by source code; totals: int64 [NUM_CODES], and sizes: as `Candidates` has them."""

    samples: dict[int, SentenceSample]
    damage: Damage
    totals: np.ndarray
    sizes: Counter[int] = field(default_factory=Counter)
    num_documents: int = 0
    text_bytes: int = 0

    def add(self, found: Candidates) -> None:
        sentences = found.sentences
        for source, kept in (sentences if isinstance(sentences, dict) else take_candidates(sentences)).items():
            self.samples[source].add(kept)
        found.characters.add_to(self.totals)
        self.sizes.update(found.sizes)
        self.damage.merge(found.damage)
        self.num_documents += found.num_documents
        self.text_bytes += found.text_bytes


def read_corpus(
    inputs: list[Input],
    text: TextConfig,
    config: VocabConfig,
    engine: Engine,
    progress: Progress,
    *,
    shared: Path | None,
    repeated: Path | None,
    allow_loss: bool,
) -> SampledCorpus:
    """Read a corpus. shared, repeated, allow_loss: see `learn_vocabulary`."""
    warming = partial(compile_sampling, SampleJob(text, config, repeated=repeated), text)
    compile_with_notice(warming, progress.say)
    places = list_samples(inputs)
    if shared is not None:
        find_storage(shared).make_folder(shared)
        places += [str(write_candidates(shared, "begin", {}))]  # a file that every machine has to see
    job = SampleJob(text, config, shared, repeated)
    prepared = PreparedJob(job=job, name="read", prepare=warming, places=tuple(places))

    def fill(samples: dict[int, SentenceSample]) -> SampledCorpus:
        totals = np.zeros(NUM_CODES, np.int64)
        corpus = SampledCorpus(samples=samples, damage=Damage(strict=text.strict), totals=totals)
        progress.start("reading", count_bytes(inputs))
        # Tasks are made while others run: later ones get a lower limit, since the sample fills.
        here = Damage(strict=text.strict)  # a thread counts in it, so it is added at the end
        plan = read_tasks(inputs, text, here, lambda task: spans_machines(engine))
        limited = (SampleTask(task=one, limits={code: samples[code].limit for code in samples}) for one in plan)
        for task, found in engine.run(prepared, limited):
            corpus.add(found)
            progress.advance(task.task.num_bytes, found.text_bytes)
        corpus.damage.merge(here)
        check_found(inputs, text, corpus.damage, corpus.num_documents, allow_loss=allow_loss)
        return corpus

    budgets, sizes = {_ALL: config.sample_bytes}, Counter({_ALL: count_bytes(inputs) or 0})
    if config.alpha is not None:
        counted = fill({})
        sizes = counted.sizes
        codes = {one.name: one.number for one in list_sources(inputs) if one.weight != 0}
        codes = codes or name_sources(sizes, counted.damage.names)
        sources = list_languages(BuildConfig(alpha=config.alpha, max_passes=config.max_passes), codes)
        wanted = share_tokens({source: sizes[codes[source.name]] for source in sources}, config.sample_bytes)
        told = [f"{one.name} {wanted[one] / 1e6:,.2f} MB" for one in sorted(sources, key=lambda one: -wanted[one])]
        progress.say(f"by alpha the sources give to learn from: {list_some(told, _SHOWN)}")
        budgets = {codes[source.name]: wanted[source] for source in sources}
    # Without a share, the first tasks would return all of their sentences, since the sample is not full yet.
    shares = {code: min(_CANDIDATES * most / (sizes[code] or 1), 1.0) for code, most in budgets.items()}
    corpus = fill({code: SentenceSample(most, shares[code]) for code, most in budgets.items()})
    if all(sample.is_full for sample in corpus.samples.values()):
        return corpus
    progress.say("the corpus repeats itself or holds little text; it is read again, for more sentences")
    return fill({code: SentenceSample(most) for code, most in budgets.items()})


def check_found(
    inputs: list[Input], text: TextConfig, damage: Damage, num_documents: int, *, allow_loss: bool = False
) -> None:
    """Raise InputError for a corpus without a document, of which much is lost, or without a field of the settings."""
    check_where(inputs, text, damage)
    if not num_documents:
        reasons = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in damage.counts.items())
        found = f" ({reasons})" if reasons else ""
        oddities = [f"{item.path}: {item.oddity}" for item in inputs if item.oddity]
        options = {
            EXCLUDED: "check --where",
            SHORT: "lower --min-chars",
            OUTSIDE_SAMPLE: "raise --sample",
            NAMED: "check --without-keys",
        }
        advice = next((what for why, what in options.items() if why in damage.counts), "give files with text in them")
        advice = "check --delimiter and --quoting" if "malformed_row" in damage.counts else advice
        advice = oddities[0] if oddities else advice
        raise InputError(f"the corpus holds no document{found}; {damage.fields.describe() or advice}")
    field = text.language_field or ""
    if field in damage.unmatched and field not in damage.matched:
        raise InputError(
            f"no record has the field {name_field(field)}; pass --language-field NAME with the one that names the "
            "language, or leave it out"
        )
    if not allow_loss:
        check_losses(inputs, damage)
