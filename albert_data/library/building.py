"""From text to shards: `train_vocab` and `build`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from albert_data.config import BuildConfig, ExampleConfig, TextConfig, VocabConfig, take_settings
from albert_data.corpus.inputs import Input, check_apart, list_texts
from albert_data.corpus.mixtures import Names
from albert_data.errors import ArgumentError, ConfigError
from albert_data.jobs.engine import Engine, MultiprocessEngine, spans_machines
from albert_data.jobs.progress import Progress
from albert_data.library.arguments import PathName, public, require_output
from albert_data.library.documents import open_corpus, take_documents
from albert_data.library.progress import show_progress
from albert_data.library.tokenizers import load_tokenizer
from albert_data.pipeline.build import BuildReport, build_shards
from albert_data.pipeline.build_folder import find_plan
from albert_data.storage import make_path
from albert_data.storage.hub import use_commits
from albert_data.storage.scratch import machine_scratch
from albert_data.survey.repeated_lines import check_rereadable, find_repeated_lines
from albert_data.tokenizer.lexicon import NO_WORDS
from albert_data.tokenizer.model import Tokenizer
from albert_data.vocab.folder import check_unicode, claim_folder, lock_folder, save_vocabulary
from albert_data.vocab.learning import learn_vocabulary
from albert_data.vocab.report import VocabReport


@public(VocabConfig, TextConfig)
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
    **settings: Any,
) -> VocabReport:
    """Train a vocabulary, and write it to the folder `output`, as `albert-data vocab` does.

    inputs, documents, workers, engine, progress, allow_loss: see `build`.
    overwrite: replace another vocabulary in `output`, that is one of other settings or other text.
    settings: those of VocabConfig and of TextConfig, which says how the inputs are read. They change `config` and
    `text`.
    Raises AlbertDataError, for example if the inputs hold no text, `output` another vocabulary, or a file that `vocab`
    did not write has one of its names.
    """
    folder, engine, documents = require_output(output), engine or MultiprocessEngine(workers), take_documents(settings)
    text, config = take_settings(TextConfig, settings, text), take_settings(VocabConfig, settings, config)
    check_strict(text, allow_loss)
    with show_progress(progress) as shown, ExitStack() as stack:
        found = stack.enter_context(open_corpus(inputs, documents, shown, text))
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
    return report


@public(TextConfig, ExampleConfig, BuildConfig)
def build(
    inputs: Names | None = None,
    output: PathName | None = None,
    *,
    validation: Names = (),
    tokenizer: Any = None,
    normalization: str = "none",
    words: str = NO_WORDS,
    special: Mapping[str, str] | None = None,
    config: BuildConfig | None = None,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress | bool = False,
    license: str | None = None,
    overwrite: bool = False,
    allow_loss: bool = False,
    trust_inputs: bool = False,
    **settings: Any,
) -> BuildReport:
    """Build the shards of a corpus into the folder `output`, as `albert-data build` does.

    inputs: names of files, folders and globs, or "-" for stdin; "corpus/de:de" is an input in German. Or the name of a
    mixture, a .toml file that names the sources of the corpus.
    documents: in place of inputs the documents themselves: an iterable of str or of dicts with the text field, a
    Dataset of `datasets`, a table, or any stream of Arrow. A str is the setting of that name, for .txt files.
    validation: inputs whose documents are the validation split; training leaves out documents that equal one of them.
    tokenizer: what `load_tokenizer` takes, with normalization, words and special (there `specials`) if it is not loaded
    yet. None trains a vocabulary with default settings on the corpus first.
    workers: processes; None for one a core. engine: in their place, as a RayEngine. They change no byte of the shards.
    progress: True shows a bar; or an object with the methods of jobs.progress.Progress.
    license: of the text, for the card; it changes no shard.
    overwrite: replace another build in `output`; a finished one stays until the new one is finished.
    allow_loss: go on where over half of the corpus, or of a file that is named as an input, can't be read. It changes
    no byte, and is not for `strict`.
    trust_inputs: inputs that differ from those of the build in `output` in time or name alone count as the same.
    settings: those of TextConfig, ExampleConfig and BuildConfig, by their names. They change `config`.
    Raises AlbertDataError: InputError, TokenizerError, OutputError or WorkerError for what the user can fix. Finished
    tasks are kept then, so the same call resumes.
    """
    settings |= {"normalization": normalization, "words": words, "special": special}
    settings |= {"tokenizer": tokenizer, "config": config, "validation": validation, "overwrite": overwrite}
    named = dict[str, Any](license=license, language_named="language" in settings, overwrite=overwrite)
    named |= {"allow_loss": allow_loss, "trust_inputs": trust_inputs}
    out, settings["allow_loss"] = require_output(output), allow_loss
    with show_progress(progress) as shown, load_arguments(inputs, out, shown, **settings) as arguments:
        found, loaded, config = arguments
        vocab, place = VocabConfig(normalization=normalization), engine or MultiprocessEngine(workers)
        report = build_shards(found, out, loaded, config, place, shown, vocab=vocab, **named)
    assert report is not None, "this is no dry run"
    return report


def check_strict(text: TextConfig, allow_loss: bool) -> None:
    """Raise ArgumentError if both are on."""
    if allow_loss and text.strict:
        raise ArgumentError("--strict stops at the first damage, and --allow-loss goes on after much; leave one out")


@contextmanager
def load_arguments(
    inputs: Names | None,
    out: Path,
    progress: Progress,
    *,
    validation: Names = (),
    overwrite: bool = False,
    tokenizer: Any = None,
    config: BuildConfig | None = None,
    allow_loss: bool = False,
    **settings: Any,
) -> Iterator[tuple[list[Input], Tokenizer | None, BuildConfig]]:
    """The inputs of a build, its tokenizer and its settings. The arguments are those of `build`.

    Raises ConfigError for words or special pieces without a tokenizer.
    """
    if validation and "validation_fraction" in settings:
        raise ArgumentError("--validation names the documents of validation, so leave out --validation-fraction")
    documents, rules = take_documents(settings), {"specials": settings.pop("special", None)}
    rules |= {name: settings.pop(name) for name in ("normalization", "words") if name in settings}
    config = BuildConfig.from_settings(config, **settings)
    check_strict(config.text, allow_loss)
    if tokenizer is None and (rules["specials"] or rules.get("words", NO_WORDS) != NO_WORDS):
        what = "--special" if rules["specials"] else "a word list"
        raise ConfigError(f"{what} needs a tokenizer; train one first with `albert-data vocab`")
    there = find_plan(out, overwrite=overwrite)
    with use_commits(there.hub if there else None):  # what names on the Hub meant to the build that is there
        loaded = None if tokenizer is None else load_tokenizer(tokenizer, **rules)
        with open_corpus(inputs, documents, progress, config.text, validation) as found:
            check_apart(found, out)
            if isinstance(tokenizer, str | os.PathLike):
                check_unicode(make_path(tokenizer), list_texts(found, config.text))
            yield found, loaded, config
