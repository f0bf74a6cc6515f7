"""`albert-data quickstart`: from text to a small trained model, by running the other commands one after another.

It prints each command before it runs it, and runs just what it prints, so that a user can go on without it. What is
finished in the output folder is not made again.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from albert_data.cli.options import (
    PATH,
    inputs_argument,
    normalization_option,
    require_packages,
    setting,
    take_text_config,
    text_options,
    validation_option,
    workers_option,
)
from albert_data.cli.output import show
from albert_data.config import TextConfig, VocabConfig
from albert_data.errors import ConfigError, InputError, OutputError
from albert_data.interrupts import say_when_interrupted
from albert_data.train.config import TrainConfig

PRESET = "mini"  # the model for a CPU
MAX_SEQ_LEN = 128
VOCAB_SIZE = 8000
# Share of validation documents by the size of the corpus. An evaluation reads 512 rows, of about 500 bytes each; a
# larger share of a small corpus would be missed in training.
_VALIDATION_BYTES = 512 * 500
_VALIDATION_FRACTIONS = (0.005, 0.01, 0.02, 0.05, 0.1)
_WIDTH = 80


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The paths in the output folder."""

    folder: Path

    @property
    def vocab(self) -> Path:
        return self.folder / "vocab"

    @property
    def shards(self) -> Path:
        return self.folder / "shards"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    @property
    def run(self) -> Path:
        return self.folder / "run"


@click.command()
@inputs_argument
@click.option("-o", "--output", type=PATH, required=True, metavar="DIR", help="Folder to write.")
@click.option(
    "--minutes",
    type=click.FloatRange(0),
    default=10,
    show_default=True,
    metavar="N",
    help="How long to train the model; 0 trains none.",
)
@click.option(
    "--vocab-size",
    type=int,
    default=VOCAB_SIZE,
    show_default=True,
    help="Number of pieces, special ones included. Fewer if the text supports no more.",
)
@validation_option
@setting(VocabConfig, "--cased/--uncased", "Keep upper case, or turn all text into lower case.")
@normalization_option
@text_options
@workers_option
def quickstart(
    inputs: tuple[str, ...],
    output: Path,
    minutes: float,
    validation: tuple[str, ...],
    vocab_size: int,
    cased: bool,
    normalization: str,
    workers: int,
    **settings: Any,
) -> int:
    """Train a vocabulary, build and audit shards, and train a small model.

    Runs the other commands with settings for a first look, and prints each of them. The vocabulary, the shards, their
    report and the model are DIR/vocab, DIR/shards, DIR/report.html and DIR/run.

    INPUT is a file, a folder, a glob in quotes or @FILE with a path on each line. Readable are .txt (a blank
    line ends a document, or see --documents), .jsonl, .json, .csv and .tsv, also compressed, .parquet, .arrow,
    folders of datasets and the output of WikiExtractor. A suffix names the language: INPUT:de is German. A single
    .toml file is a mixture of sources, each with a weight.

    After an interruption, the same command resumes. What is finished is not made again. Training needs PyTorch; without
    it, the rest is done.

    \b
    Example:
      albert-data quickstart corpus/ -o first
      albert-data quickstart book.txt --unwrap --minutes 2 -o first
    """
    text = take_text_config(settings)
    vocab = VocabConfig(vocab_size=vocab_size, cased=cased, normalization=normalization)
    if minutes:
        TrainConfig(preset=PRESET, steps=None, minutes=minutes)  # raises ConfigError now, not after the build
    layout, options = Layout(folder=output), _list_options(text)
    options += [] if normalization == "none" else ["--normalization", normalization]
    if click.get_current_context().get_parameter_source("workers") is ParameterSource.COMMANDLINE:
        options += ["--workers", str(workers)]
    _check_inputs(inputs, validation, output, text, is_read_twice=True)
    _train_vocabulary(inputs, layout, vocab, options)
    _check_inputs(inputs, validation, output, text, is_read_twice=False)
    _build(inputs, validation, layout, options)
    _report(layout)
    code = _train(layout, minutes) if minutes else 0
    _say_next(layout)
    return code


# ---- commands ----


def _run(title: str | None, name: str, arguments: Sequence[str], options: Sequence[str] = ()) -> int:
    """Print a command, under a title if there is one, and run it. Returns its exit code; raises what it raises."""
    from albert_data.cli.main import cli

    words = _order(arguments, options)
    show(f"{_head(title) if title else ''}\n{format_command([name, *words])}\n")
    say_when_interrupted("Interrupted; the same command resumes.")
    context = click.get_current_context()
    command = cli.get_command(context, name)
    assert command is not None
    with command.make_context(name, words, parent=context.parent) as inner:
        result = command.invoke(inner)
    return result if isinstance(result, int) else 0


def _head(title: str) -> str:
    return f"\n== {title} =="


def _order(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Arguments and options in the usual order; behind `--` if an argument looks like an option."""
    if any(argument.startswith("-") and argument != "-" for argument in arguments):
        return [*options, "--", *arguments]
    return [*arguments, *options]


def format_command(words: Sequence[str]) -> str:
    """A command line for a shell. A long one is continued on the next line by a backslash."""
    lines = ["albert-data"]
    for word in map(shlex.quote, words):
        if len(lines[-1]) + len(word) + 3 > _WIDTH:  # a space before the word, and another one before the backslash
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}"
    return " \\\n".join(lines)


def _list_options(text: TextConfig) -> list[str]:
    """The options that give these settings, without those that have their default."""
    options = []
    for field in dataclasses.fields(text):
        value, flag = getattr(text, field.name), "--" + field.name.replace("_", "-")
        if value != field.default:
            options += [flag] if value is True else [flag, str(value)]
    return options


# ---- steps ----


def _check_inputs(
    inputs: Sequence[str], validation: Sequence[str], output: Path, text: TextConfig, *, is_read_twice: bool
) -> None:
    """Raise InputError before anything is written for inputs that are missing, or that would read what this writes.

    is_read_twice: whether the vocabulary is still to be trained; a stream can be read only once.
    """
    from albert_data.corpus.mixtures import find_sources
    from albert_data.pipeline.vocabulary_folder import is_saved

    here = output.resolve()
    found = find_sources(inputs, lambda line: None, text, validation)
    streams = [item.path for item in found if item.is_stream and not item.is_validation]
    if is_read_twice and streams and not is_saved(Layout(folder=output).vocab):
        raise InputError(
            f"quickstart reads its inputs twice, and {streams[0]} can be read only once; give files, or use "
            "`albert-data vocab` and `albert-data build`"
        )
    given = [name for word in (*inputs, *validation) for name in (word, word.rpartition(":")[0])]
    folders = [Path(name) for name in given if os.path.isdir(name)]
    inside = [folder for folder in folders if here.is_relative_to(folder.resolve())]
    inside += [
        Path(item.path) for item in found if not item.is_stream and Path(item.path).resolve().is_relative_to(here)
    ]
    if inside:
        raise InputError(
            f"{output} and the input {inside[0]} overlap: what is written there would be read as text; "
            "choose another --output, outside of the inputs"
        )


def _train_vocabulary(inputs: Sequence[str], layout: Layout, config: VocabConfig, options: Sequence[str]) -> None:
    from albert_data.pipeline.vocabulary_folder import is_saved
    from albert_data.tokenizer.training import VocabularyTooLarge

    title = "1. Train a vocabulary"
    if is_saved(layout.vocab):
        _check_vocabulary(layout.vocab, config)
        show(f"{_head(title)}\n{layout.vocab} is finished; nothing to do")
        return

    def train(size: int, title: str | None = None) -> None:
        casing = [] if config.cased else ["--uncased"]
        _run(title, "vocab", inputs, ["--vocab-size", str(size), *casing, *options, "-o", str(layout.vocab)])

    try:
        train(config.vocab_size, title)
    except VocabularyTooLarge as error:
        show(f"The text supports no more than {error.largest:,} pieces, so the vocabulary gets that many:")
        train(error.largest)


def _check_vocabulary(folder: Path, config: VocabConfig) -> None:
    """Raise OutputError if a vocabulary that is there is of another kind than the one that is asked for."""
    there = _read_settings(folder)
    normalization = there.get("normalization", "none")
    is_other = there.get("cased") != config.cased or normalization != config.normalization
    if is_other or there.get("vocab_size", 0) > config.vocab_size:  # less: it was shrunk
        casing = "cased" if there.get("cased") else "uncased"
        normalized = f", with --normalization {normalization}" if normalization != config.normalization else ""
        raise OutputError(
            f"{folder} holds another vocabulary, {casing} and of {there.get('vocab_size', 0):,} pieces{normalized}; "
            "give the options that it was made with, or choose another --output"
        )


def _read_settings(folder: Path) -> dict[str, Any]:
    from albert_data.files import read_json
    from albert_data.pipeline.vocabulary_folder import SETTINGS_NAME

    return read_json(folder / SETTINGS_NAME)


def _build(inputs: Sequence[str], validation: Sequence[str], layout: Layout, options: Sequence[str]) -> None:
    text_bytes = _read_settings(layout.vocab)["text_bytes"]
    enough = [fraction for fraction in _VALIDATION_FRACTIONS if fraction * text_bytes >= _VALIDATION_BYTES]
    fraction = min(enough, default=_VALIDATION_FRACTIONS[-1])
    held_out = [word for name in validation for word in ("--validation", name)]
    rows = ["--max-seq-len", str(MAX_SEQ_LEN), *(held_out or ("--validation-fraction", str(fraction)))]
    _run(
        "2. Turn the text into rows for training",
        "build",
        inputs,
        ["--tokenizer", str(layout.vocab), *rows, *options, "-o", str(layout.shards)],
    )


def _report(layout: Layout) -> None:
    if os.path.lexists(layout.report):  # shards in this folder never change, so the report is theirs
        show(f"{_head('3. Look at the rows')}\n{layout.report} is there; nothing to do")
        return
    html = ["--html", str(layout.report)]
    _run("3. Look for what makes the rows bad for training", "audit", [str(layout.shards)])
    _run("4. Show the rows, the figures and the audit in a browser", "inspect", [str(layout.shards)], html)


def _train(layout: Layout, minutes: float) -> int:
    """Train the model, or resume that. Returns the exit code."""
    from albert_data.train.folder import load_config

    title = "5. Train a small model"
    try:
        require_packages("torch", "safetensors", extra="train")
    except ConfigError as error:
        show(f"{_head(title)}\nNot done: {error}. Then give the same command again.")
        return 0
    options = ["-o", str(layout.run)]
    if _has_run(layout):
        options += ["--resume"]
        if (stored := load_config(layout.run).minutes) != minutes:
            show(
                f"\n{layout.run} keeps the settings that it was started with: minutes {stored or 'not given'}.\n"
                "To train with others, move it away."
            )
    else:
        options += ["--preset", PRESET, "--minutes", str(minutes).removesuffix(".0")]
    code = _run(title, "train", [str(layout.shards)], options)
    if code == 0:
        _show_guesses(layout)
    else:
        show("\nThe training was interrupted. The same command resumes it.")
    return code


def _has_run(layout: Layout) -> bool:
    from albert_data.train.folder import RUN_FILE

    return os.path.lexists(layout.run / RUN_FILE)


def _has_model(layout: Layout) -> bool:
    from albert_data.train.folder import CHECKPOINTS_FOLDER

    return any((layout.run / CHECKPOINTS_FOLDER).glob("step-*"))


def _show_guesses(layout: Layout) -> None:
    """Print guesses for training rows if there are no validation rows, for which `train` prints some."""
    from albert_data.shards.reader import open_splits
    from albert_data.train.checkpoint import list_checkpoints, load_model
    from albert_data.train.guesses import Guesser, to_lines

    splits = open_splits(layout.shards)
    if not len(splits.get("validation", ())):
        answers = Guesser(splits["train"]).ask(load_model(list_checkpoints(layout.run)[-1]))
        title = "Guesses of the model for masked words of its training texts"
        show("\n".join([_head(title), *to_lines(answers)]))


def _say_next(layout: Layout) -> None:
    """Print what was made and the commands for the next steps."""
    shards, run = str(layout.shards), str(layout.run)
    made = [(layout.vocab, "the vocabulary"), (layout.shards, "the shards"), (layout.report, "open it in a browser")]
    steps = [("Show rows", "inspect", shards, ["-n", "5"])]
    training = ["--preset", PRESET, "--minutes", "60", "-o"]
    if _has_model(layout):
        made.append((layout.run, "the model; its report.html has curves and guesses"))
        steps += [
            ("See the learning curves", "runs", run, []),
            ("Use the model with transformers", "export", run, ["-o", str(layout.folder / "model")]),
            ("Train longer", "train", shards, [*training, str(layout.folder / "longer-run")]),
        ]
    elif not _has_run(layout):
        steps.append(("Train a model", "train", shards, [*training, run]))
    width = max(len(str(path)) for path, _ in made)
    show("\n".join([_head("Made"), *(f"{path!s:<{width}}  {what}" for path, what in made), _head("Next")]))
    for what, name, argument, options in steps:
        show(f"# {what}\n{format_command([name, *_order([argument], options)])}")
