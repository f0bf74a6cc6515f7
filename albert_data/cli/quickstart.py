"""`albert-data quickstart`: from text to a small trained model, by running the other commands one after another.

It prints each command before it runs it, and runs just what it prints, so that a user can go on without it. What is
finished in the output folder is not made again. DIR/.quickstart.json says for which options and text the folder is;
for others it is refused.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albert_data.cli.compiling import compiling_beside
from albert_data.cli.options import (
    PATH,
    allow_loss_option,
    optional_inputs_argument,
    setting,
    take_given,
    text_options,
    workers_option,
)
from albert_data.config import BuildConfig, TextConfig, VocabConfig, swap_documents
from albert_data.errors import ConfigError, InputError, OutputError, explain_os_error
from albert_data.library.arguments import require_packages
from albert_data.storage.files import is_there, read_json, to_json
from albert_data.storage.interrupts import say_when_interrupted
from albert_data.text.escaping import quote
from albert_data.text.output import show
from albert_data.train.config import TrainConfig
from albert_data.train.folder import CHECKPOINTS_FOLDER, RUN_FILE

if TYPE_CHECKING:
    from albert_data.corpus.inputs import Input

PRESET = "mini"  # the model for a CPU
MAX_SEQ_LEN = 128
VOCAB_SIZE = 8000
MINUTES, LONGER = 10, 60  # of the training in DIR/run, and of that which is offered next
SAMPLE = Path(__file__).parents[1] / "sample_corpus"
RECORD = ".quickstart.json"  # hidden, so that no glob of the user takes it for text


@click.command()
@optional_inputs_argument
@click.option(
    "-o", "--output", type=PATH, default="quickstart", show_default=True, metavar="DIR", help="Folder to write."
)
@click.option(
    "--minutes",
    type=click.FloatRange(0),
    default=MINUTES,
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
@setting(BuildConfig, "--alpha", "As in `vocab` and `build`.  [default: none]", type=float, metavar="A")
@text_options
@allow_loss_option
@workers_option
def quickstart(
    inputs: tuple[str, ...],
    output: Path,
    minutes: float,
    vocab_size: int,
    alpha: float | None,
    workers: int | None,
    allow_loss: bool,
    **settings: Any,
) -> int:
    """Train a vocabulary, build and audit shards, and train a small model.

    Runs the other commands with settings for a first look, and prints each of them. The vocabulary, the shards, their
    report and the model are DIR/vocab, DIR/shards, DIR/report.html and DIR/run.

    Without INPUT the text is a small sample, which is written to sample_corpus beside DIR.

    INPUT is a file, a folder, a glob in quotes or @FILE with a path on each line. Readable are .txt (a blank
    line ends a document, or see --documents), .md, .jsonl, .json, .csv, .tsv, also compressed, .parquet, .arrow,
    folders of datasets and the output of WikiExtractor. A suffix names the language: INPUT:de is German. A single
    .toml file is a mixture of sources, each with a weight.

    After an interruption, the same command resumes. What is finished is not made again. Other options, a changed text
    or a model of other minutes need another DIR. If the audit finds the rows bad, no model is trained, and the exit
    code is 1, with --minutes 0 too. Training needs PyTorch; without it, the rest is done.

    \b
    Example:
      albert-data quickstart
      albert-data quickstart corpus/ -o first
      albert-data quickstart book.txt --unwrap --minutes 2 -o first
    """
    abbreviations = take_given(settings).get("abbreviations")  # their text, where the option has a file
    text = TextConfig(**{**settings, "abbreviations": abbreviations})
    VocabConfig(vocab_size=vocab_size, alpha=alpha)  # raises ConfigError now
    if minutes:
        TrainConfig(preset=PRESET, steps=None, minutes=minutes)  # raises ConfigError now, not after the build
    inputs = inputs or (_take_sample(output.parent),)
    found, reading = _find_inputs(inputs, output, text), _list_options(text, settings)
    reading += [] if alpha is None else ["--alpha", str(alpha)]
    _claim(output, (*reading, "--vocab-size", str(vocab_size)), found)
    reading += [*(() if workers is None else ("--workers", str(workers))), *(["--allow-loss"] if allow_loss else [])]
    with compiling_beside():
        _train_vocabulary(inputs, output, vocab_size, reading)
        _find_inputs(inputs, output, text)
        rows = ["--tokenizer", str(output / "vocab"), "--max-seq-len", str(MAX_SEQ_LEN), *reading]
        _run("2. Turn the text into rows for training", "build", inputs, [*rows, "-o", str(output / "shards")])
        bad, fixes = _report(inputs, output)
    if bad:
        other = [*fixes, "-o", str(output.with_name(f"{output.name}-2"))]
        ways = [f"To read the text in another way, add: {' '.join(map(quote, other))}"] if fixes else []
        _say("These rows are bad for training", *bad, *ways)
    code = 1 if bad else _train(output, minutes) if minutes else 0
    _say_next(output, bad)
    return code


# ---- the folder ----


def _take_sample(parent: Path) -> str:
    """Write the sample corpus to a folder in `parent`, unless it is there. Returns its path."""
    folder, part = parent / SAMPLE.name, parent / f".{SAMPLE.name}-{os.getpid()}"
    is_new = not os.path.lexists(folder)
    if is_new:
        try:
            shutil.copytree(SAMPLE, part, ignore=shutil.ignore_patterns("README.md"))
            part.rename(folder)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another quickstart has just written it
                ways = "go to another folder, or name one by -o"
                raise OutputError(f"the sample can't be written to {folder}: {error.strerror}; {ways}") from error
    show(f"no INPUT is given; the text is {'a sample, written to ' if is_new else 'that in '}{folder}")
    return str(folder)


def _claim(folder: Path, options: Sequence[str], inputs: list[Input]) -> None:
    """Make the folder for these options and inputs. Raises OutputError if it is for others, or holds what is not ours.

    Several quickstarts at once are kept apart by the locks of the commands that they run.
    """
    from albert_data.pipeline.build_folder import check_empty

    # What decides whether a build takes its text for the same; the name is one of them.
    identify = attrgetter("path", "size", "modified_ns", "language", "source")
    text_sha256 = sha256(repr([identify(item) for item in inputs]).encode()).hexdigest()
    asked, path = {"options": " ".join(map(quote, options)), "text_sha256": text_sha256}, folder / RECORD
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if is_there(path):
            show(f"{folder} is there: what is finished in it is not made again")
        else:
            check_empty(folder, "quickstart")
        with suppress(FileExistsError), path.open("xb") as file:  # another one may just have made it
            file.write(to_json(asked))
        there = read_json(path)
    except OSError as error:
        raise OutputError(
            f"output {folder} can't be written: {explain_os_error(error)}; name another folder"
        ) from error
    except ValueError as error:
        raise OutputError(f"{path} was not written by quickstart ({error}); name another folder by -o") from error
    if there != asked:
        raise OutputError(
            f"{folder} holds what quickstart made with the options in {path}, and the text as it was then; "
            "these options or this text differ: name another folder by -o"
        )


# ---- commands ----


def _say(title: str, *lines: str) -> None:
    show("", f"== {title} ==", *lines)


def _run(title: str, name: str, arguments: Sequence[str], options: Sequence[str] = ()) -> Any:
    """Print a command under a title, and run it. Returns and raises what it returns and raises."""
    from albert_data.cli.main import cli

    words = _order(arguments, options)
    _say(title, format_command([name, *words]), "")
    say_when_interrupted("Interrupted; the same command resumes.")
    context = click.get_current_context()
    command = cli.get_command(context, name)
    assert command is not None
    with command.make_context(name, words, parent=context.parent) as inner:
        return command.invoke(inner)


def _order(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Arguments and options in the usual order; behind `--` if an argument looks like an option."""
    if any(argument.startswith("-") and argument != "-" for argument in arguments):
        return [*options, "--", *arguments]
    return [*arguments, *options]


def format_command(words: Sequence[str]) -> str:
    """A command for a shell, in one line."""
    return " ".join(map(quote, ["albert-data", *words]))


def _list_options(text: TextConfig, given: dict[str, Any]) -> list[str]:
    """The options that give these settings, without those that have their default. given: as the user gave them."""
    options = []
    for field in dataclasses.fields(text):
        value = given[field.name] if field.name == "abbreviations" else getattr(text, field.name)
        name = next(iter(swap_documents({field.name: value}))).replace("_", "-")
        if value != field.default:
            options += [f"--{'' if value else 'no-'}{name}"] if isinstance(value, bool) else [f"--{name}", str(value)]
    return options


# ---- steps ----


def _find_inputs(inputs: Sequence[str], output: Path, text: TextConfig) -> list[Input]:
    """Find the inputs. Raises InputError for those that are missing, or that would read what this writes."""
    from albert_data.corpus.inputs import check_apart
    from albert_data.corpus.mixtures import find_sources

    found = find_sources(inputs, lambda line: None, text)
    streams = [item.path for item in found if item.is_stream]
    if streams:
        raise InputError(
            f"quickstart reads its inputs twice, and {streams[0]} can be read only once; give files, or use "
            "`albert-data vocab` and `albert-data build`"
        )
    check_apart(found, output)
    return found


def _train_vocabulary(inputs: Sequence[str], output: Path, num_pieces: int, options: Sequence[str]) -> None:
    from albert_data.vocab.folder import is_saved
    from albert_data.vocab.training import VocabularyTooLarge

    title, folder = "1. Train a vocabulary", output / "vocab"
    if is_saved(folder):
        _say(title, f"{folder} is finished; nothing to do")
        return

    def train(size: int) -> None:
        _run(title, "vocab", inputs, ["--vocab-size", str(size), *options, "-o", str(folder)])

    try:
        train(num_pieces)
    except VocabularyTooLarge as error:
        show(f"The text supports no more than {error.largest:,} pieces, so the vocabulary gets that many:")
        train(error.largest)


def _report(corpus: Sequence[str], output: Path) -> tuple[list[str], list[str]]:
    """Audit the shards beside their corpus, and write their report. Returns what is bad, and options that may help."""
    from albert_data.inspect.audit.audit import check_to_lines
    from albert_data.inspect.audit.rules import BAD
    from albert_data.shards.advice import advise_on
    from albert_data.shards.manifest_file import read_manifest

    shards, report = output / "shards", output / "report.html"
    inputs = [word for name in corpus for word in ("--corpus", name)]
    _run("3. Look at some rows", "inspect", [str(shards)], ["-n", "2"])
    found = _run("4. Look for what makes the rows bad for training", "audit", [str(shards)], inputs)
    title = "5. Show the rows, the figures and the audit in a browser"
    if is_there(report):  # shards in this folder never change, so the report is theirs
        _say(title, f"{report} is there; nothing to do")
    else:
        _run(title, "inspect", [str(shards)], ["--html", str(report)])
    bad = [line for check in found.checks if check.verdict == BAD for line in check_to_lines(check)]
    return bad, [word for advice in advise_on(read_manifest(shards)) for word in advice.options]


def _train(output: Path, minutes: float) -> int:
    """Train the model, or resume that. Returns the exit code."""
    title = "6. Train a small model"
    try:
        require_packages("quickstart", "torch", "safetensors", extra="train")
    except ConfigError as error:
        _say(title, f"Not done: {error}. Then give the same command again.")
        return 0
    run = output / "run"
    begun = ["--resume"] if os.path.lexists(run / RUN_FILE) else ["--preset", PRESET]
    options = [*begun, "--minutes", f"{minutes:.12g}", "-o", str(run)]
    code: int = _run(title, "train", [str(output / "shards")], options)
    if code:
        show("", "The training was interrupted. The same command resumes it.")
    return code


def _say_next(output: Path, bad: list[str]) -> None:
    """Print the commands for the next steps."""
    shards, run = str(output / "shards"), output / "run"
    steps = [("Show rows", "inspect", shards, ["-n", "5"])]
    has_model = any((run / CHECKPOINTS_FOLDER).glob("step-*"))
    if has_model:
        steps += [
            ("See the learning curves", "runs", str(run), []),
            ("Use the model with transformers", "export", str(run), ["-o", f"{run}-model"]),
        ]
    training = ["--preset", PRESET, "--minutes", str(LONGER), "-o", str(output / "longer")]
    what = "Train all the same" if bad else "Train longer" if has_model else "Train a model"
    steps.append((what, "train", shards, training))
    _say("Next", f"Open {output / 'report.html'} in a browser.")
    for what, name, argument, options in steps:
        show(f"# {what}", format_command([name, *_order([argument], options)]))
