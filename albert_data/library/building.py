"""From text to shards: `train_vocab`, `build` and `estimate`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Unpack

from albert_data.config import BuildConfig, ExampleConfig, TextConfig, VocabConfig, take_settings
from albert_data.corpus.inputs import Input, check_apart, list_texts
from albert_data.corpus.mixtures import Names
from albert_data.errors import ArgumentError, ConfigError, InputError
from albert_data.jobs.engine import Engine, MultiprocessEngine, spans_machines
from albert_data.jobs.progress import Progress, log
from albert_data.library.arguments import PathName, public, require_output
from albert_data.library.documents import open_corpus
from albert_data.library.progress import show_progress
from albert_data.library.settings import BuildSettings, VocabSettings
from albert_data.library.tokenizers import load_tokenizer
from albert_data.pipeline.build import BuildReport, build_shards, check_build
from albert_data.pipeline.build_folder import find_plan
from albert_data.pipeline.estimate import BuildEstimate, estimate_build
from albert_data.pipeline.plan import choose_fraction
from albert_data.storage import make_path
from albert_data.storage.hub import use_commits
from albert_data.storage.scratch import machine_scratch
from albert_data.survey.repeated_lines import check_rereadable, find_repeated_lines
from albert_data.tokenizer.lexicon import NO_WORDS
from albert_data.tokenizer.model import Tokenizer
from albert_data.vocab.folder import check_unicode, claim_folder, lock_folder, save_vocabulary
from albert_data.vocab.learning import learn_vocabulary
from albert_data.vocab.report import VocabReport


@contextmanager
def load_arguments(
    inputs: Names | None,
    out: Path | None,
    progress: Progress,
    *,
    documents: Any = None,
    sources: Any = None,
    validation: Names = (),
    validation_documents: Any = None,
    tokenizer: Any = None,
    normalization: str = "none",
    words: PathName = NO_WORDS,
    special: Mapping[str, str] | None = None,
    config: BuildConfig | None = None,
    overwrite: bool = False,
    allow_loss: bool = False,
    **settings: Any,
) -> Iterator[tuple[list[Input], Tokenizer | None, BuildConfig]]:
    """The inputs of a build, its tokenizer and its settings. The arguments are those of `build`.

    Raises ConfigError for words or special pieces without a tokenizer.
    """
    if (validation or validation_documents is not None) and "validation_fraction" in settings:
        raise ArgumentError("--validation names the documents of validation, so leave out --validation-fraction")
    config, sharing = BuildConfig.from_settings(config, **settings), dict[str, float]()
    check_strict(config.text, allow_loss)
    if tokenizer is None and (special or words != NO_WORDS):
        what = "--special" if special else "a word list"
        raise ConfigError(f"{what} needs a tokenizer; train one first with `albert-data vocab`")
    if sources is not None and config.alpha is not None:  # as in the file of a mixture, alpha belongs to the sources
        sharing = {"alpha": config.alpha, "max_passes": config.max_passes}
        config = dataclasses.replace(config, alpha=None, max_passes=BuildConfig.max_passes)
    there = None if out is None else find_plan(out, overwrite=overwrite)
    with use_commits(there.hub if there else None):  # what names on the Hub meant to the build that is there
        rules = dict[str, Any](normalization=normalization, words=words, specials=special)
        loaded = None if tokenizer is None else load_tokenizer(tokenizer, **rules)
        others = {"sources": sources, "sharing": sharing, "validation_documents": validation_documents}
        with open_corpus(inputs, documents, progress, config.text, validation, **others) as found:
            if out is not None:
                check_apart(found, out)
            if isinstance(tokenizer, str | os.PathLike):
                check_unicode(make_path(tokenizer), list_texts(found, config.text))
            yield found, loaded, config


def check_strict(text: TextConfig, allow_loss: bool) -> None:
    """Raise ArgumentError if both are on."""
    if allow_loss and text.strict:
        raise ArgumentError("--strict stops at the first damage, and --allow-loss goes on after much; leave one out")


@public(TextConfig, VocabConfig)
def train_vocab(
    inputs: Names | None = None,
    output: PathName | None = None,
    *,
    config: VocabConfig | None = None,
    text: TextConfig | None = None,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress | bool = False,
    allow_loss: bool = False,
    overwrite: bool = False,
    **settings: Unpack[VocabSettings],
) -> VocabReport:
    """Train a vocabulary, and write it to the folder `output`, as `albert-data vocab` does.

    inputs, documents, sources, workers, engine, progress, allow_loss: see `build`.
    overwrite: replace another vocabulary in `output`, that is one of other settings or other text.
    settings: those of VocabConfig and of TextConfig, which says how the inputs are read. They change `config` and
    `text`.
    Raises AlbertDataError, for example if the inputs hold no text, `output` another vocabulary, or a file that `vocab`
    did not write has one of its names.
    """
    folder, engine, given = require_output(output), engine or MultiprocessEngine(workers), dict[str, Any](settings)
    text, config = take_settings(TextConfig, given, text), take_settings(VocabConfig, given, config)
    check_strict(text, allow_loss)
    with show_progress(progress) as shown, ExitStack() as stack:
        found = stack.enter_context(open_corpus(inputs, given.pop("documents", None), shown, text, **given))
        place = stack.enter_context(lock_folder(folder))
        claim_folder(folder, config.to_dict(), overwrite=overwrite)
        check_rereadable(found, text)
        shared = place if spans_machines(engine) else None
        if shared is None and text.drop_repeated_lines is not None:
            place = stack.enter_context(machine_scratch())
        repeated = find_repeated_lines(found, text, place, engine, shown)
        report = learn_vocabulary(
            found, text, config, engine, shown, shared=shared, repeated=repeated, allow_loss=allow_loss
        )
        save_vocabulary(folder, report, overwrite=overwrite)
        if not progress:
            log(*report.list_notes())
    return report


@public(load_arguments, TextConfig, ExampleConfig, BuildConfig)
def build(
    inputs: Names | None = None,
    output: PathName | None = None,
    *,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress | bool = False,
    license: str | None = None,
    overwrite: bool = False,
    allow_loss: bool = False,
    trust_inputs: bool = False,
    without_keys: PathName | None = None,
    **settings: Unpack[BuildSettings],
) -> BuildReport:
    """Build the shards of a corpus into the folder `output`, as `albert-data build` does.

    inputs: names of files, folders and globs, or "-" for stdin; "corpus/de:de" is an input in German. Or the name of a
    mixture, a .toml file that names the sources of the corpus.
    documents: in place of inputs the documents themselves: an iterable of str or of dicts with the text field, a
    Dataset of `datasets`, a table, or any stream of Arrow.
    sources: in place of both the sources of a mixture, each a Source. `alpha` and `max_passes` are then theirs.
    validation, validation_documents: the same of the validation split; training leaves out what equals one of them.
    tokenizer: what `load_tokenizer` takes, with normalization, words and special (there `specials`) if it is not loaded
    yet. None trains a vocabulary with default settings on the corpus first.
    workers: processes; None for one a core. engine: in their place, as a RayEngine. They change no byte of the shards.
    progress: True shows a bar; or an object with the methods of jobs.progress.Progress; False logs as `albert_data`.
    license: of the text, for the card; it changes no shard.
    overwrite: replace another build in `output`; a finished one stays until the new one is finished.
    allow_loss: go on where over half of the corpus, or of a file that is named as an input, can't be read. It changes
    no byte; `strict` excludes it.
    trust_inputs: inputs that differ from those of the build in `output` in time or name alone count as the same.
    without_keys: a file that names documents to leave out, one a line: document keys of 16 hex digits, or ids.
    settings: those of TextConfig, ExampleConfig and BuildConfig, by their names. They change `config`.
    Raises AlbertDataError: InputError, TokenizerError, OutputError or WorkerError for what the user can fix. Finished
    tasks are kept then, so the same call resumes.
    """
    out, both = require_output(output), {"overwrite": overwrite, "allow_loss": allow_loss}
    named = dict[str, Any](license=license, language_named="language" in settings, trust_inputs=trust_inputs, **both)
    named["without_keys"] = without_keys
    with show_progress(progress) as shown, load_arguments(inputs, out, shown, **both, **settings) as arguments:
        found, loaded, config = arguments
        vocab = VocabConfig(normalization=settings.get("normalization", "none"))
        place = engine or MultiprocessEngine(workers)
        report = build_shards(found, out, loaded, config, place, shown, vocab=vocab, **named)
        assert report is not None, "this is no dry run"
        if not progress:
            log(*report.list_notes())
    return report


@public(load_arguments, TextConfig, ExampleConfig, BuildConfig)
def estimate(
    inputs: Names | None = None, *, progress: Progress | bool = False, **settings: Unpack[BuildSettings]
) -> BuildEstimate:
    """Estimate from a sample what `build` makes of the same corpus, as `albert-data build --dry-run` does.

    It needs a tokenizer. Copies count as if they stayed. Raises what `build` raises for settings that don't fit the
    corpus, and InputError where a sample holds no token.
    """
    with show_progress(progress) as shown, load_arguments(inputs, None, shown, **settings) as arguments:
        found, loaded, config = arguments
        if loaded is None:
            raise ArgumentError("tokenizer is missing, which an estimate needs; train one with train_vocab")
        check_build(found, loaded, choose_fraction(found, config), MultiprocessEngine())
        estimated = estimate_build(found, loaded, config, shown)
    if estimated is None:
        raise InputError("a sample of the corpus holds no token, so nothing can be estimated; check the inputs")
    return estimated
