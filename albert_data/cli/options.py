"""Options that several commands share, and how options become the settings of the library.

The default of a setting is written once, in its class in config.py; an option reads it from there.
"""

from __future__ import annotations

import dataclasses
import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from albert_data.config import (
    DOCUMENT_RULES,
    FORMATS,
    NORMALIZATIONS,
    QUOTING,
    SENTENCE_RULES,
    UNICODE_FORMS,
    TextConfig,
    VocabConfig,
    swap_documents,
)
from albert_data.corpus.conditions import join_where
from albert_data.errors import readable
from albert_data.library.arguments import RANGES, disk_path
from albert_data.sentences.abbreviations import MAX_BYTES, normalise_abbreviations
from albert_data.storage import is_remote, make_path
from albert_data.storage.hub import is_model

Command = TypeVar("Command", bound=Callable[..., Any])
_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_PAIR = re.compile(r"([^=]+)=(.+)")


def take_given(settings: dict[str, Any]) -> dict[str, Any]:
    """The options that the user gave. The others are left to the library, which has their defaults."""
    source = click.get_current_context().get_parameter_source
    given = {name: value for name, value in settings.items() if source(name) is not ParameterSource.DEFAULT}
    if path := given.get("abbreviations"):
        with readable(f"--abbreviations {path}", "name a text file"), path.open("rb") as file:
            given["abbreviations"] = normalise_abbreviations(file.read(MAX_BYTES + 1), f"--abbreviations {path}")
    return given


class _Path(click.Path):
    """A path on a disk, or also the URL of a store, or the name of a model on the Hugging Face Hub, which stays a text.

    Elsewhere a URL is refused: pathlib would make the folder `s3:`.
    """

    def __init__(self, *, in_stores: bool, on_hub: bool = False) -> None:
        super().__init__(path_type=Path)
        self._in_stores, self._on_hub = in_stores, on_hub

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self._on_hub and is_model(value):
            return value
        if self._in_stores and is_remote(value):
            return make_path(value)
        return super().convert(disk_path(value, param.human_readable_name if param else "this"), param, ctx)


PATH, PLACE = _Path(in_stores=False), _Path(in_stores=True)
MODEL, TOKENIZER = _Path(in_stores=False, on_hub=True), _Path(in_stores=True, on_hub=True)


# ---- settings ----


def setting(config: type[Any], flags: str, help: str, **attributes: Any) -> Callable[[Command], Command]:
    """An option for the field of `config` with the same name; its default is that of the field.

    click infers the type from the default. Where that is None, pass `type`.
    """
    (name,) = swap_documents({flags.split("/")[0].removeprefix("--").replace("-", "_"): None})
    default = next(field.default for field in dataclasses.fields(config) if field.name == name)
    return click.option(flags, name, default=default, show_default=default not in (None, ""), help=help, **attributes)


# ---- values ----


def parse_size(value: str | int) -> int:
    """A number of bytes: 64000000, 64M, 64MB."""
    text = str(value).upper().removesuffix("B")
    unit = text[-1:] if text[-1:] in _SIZES else ""
    try:
        return int(float(text.removesuffix(unit)) * _SIZES[unit])
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is not a size; write it as 64000000, 64M or 1.5G") from None


def parse_pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The value of each key: {"cls": "<bos>"} of cls=<bos>."""
    found = [_PAIR.fullmatch(value) for value in values]
    if None in found:
        raise click.BadParameter(f"write {parameter.metavar}")
    pairs = {one[1]: one[2] for one in found if one}
    if len(pairs) < len(values):
        raise click.BadParameter("a key is there twice; give each key once")
    return pairs


# ---- options ----

_text_setting = partial(setting, TextConfig)
_TEXT_OPTIONS = (  # in the order of --help
    _text_setting(
        "--sentences", "Split lines into sentences, or take each line as one.", type=click.Choice(SENTENCE_RULES)
    ),
    _text_setting("--language", "Language (ISO 639) whose rules find sentences.", metavar="CODE"),
    _text_setting(
        "--abbreviations", "File of more abbreviations, each after its language: 'de bspw.'.", type=PATH, metavar="FILE"
    ),
    _text_setting("--text-field", "Field with the text; a.b is inside a, and a,b are joined.", metavar="NAME"),
    _text_setting("--documents", "What ends a document in .txt.", type=click.Choice(DOCUMENT_RULES)),
    _text_setting(
        "--document-separator", "Text that ends a document in .txt, such as '<|endoftext|>'.", metavar="TEXT"
    ),
    _text_setting("--unwrap", "Join the lines of hard-wrapped paragraphs.", is_flag=True),
    _text_setting(
        "--drop-repeated-lines",
        "Remove lines that N or more documents have, such as footers; numbers count as equal.",
        type=int,
        metavar="N",
    ),
    _text_setting("--language-field", "Field that names each record's language.  [default: none]", metavar="NAME"),
    _text_setting(
        "--where",
        "Read only records for which this holds, such as 'metadata.language_score >= 0.65'; with ==, !=, <, <=, >, >=, "
        "in, not in, and, or. Repeatable: all must hold.",
        metavar="CONDITION",
        multiple=True,
        callback=lambda context, parameter, value: join_where(value) or None,
    ),
    _text_setting("--min-chars", "Leave out documents of fewer than N characters.", type=int, metavar="N"),
    _text_setting(
        "--exclude",
        "Skip what matches in folders, globs and lists, such as '*.bak' or drafts/. Repeatable.",
        metavar="GLOB",
        multiple=True,
        callback=lambda context, parameter, value: ",".join(value) if value else None,
    ),
    _text_setting(
        "--encoding",
        "Encoding of all inputs; auto finds that of each file.  [default: UTF-8, or by the byte order mark]",
        metavar="NAME",
    ),
    _text_setting(
        "--unicode",
        "Leave characters as they are, or compose accented letters (NFC).",
        type=click.Choice(UNICODE_FORMS),
    ),
    _text_setting(
        "--delimiter", "Character between fields of .csv and .tsv, such as ';' or tab; auto finds it.", metavar="CHAR"
    ),
    _text_setting(
        "--quoting",
        "Quotation marks in .csv and .tsv: around fields (auto), also of over 64 lines (long), or as text (none).",
        type=click.Choice(QUOTING),
    ),
    _text_setting("--header/--no-header", "Whether .csv and .tsv have a header; if not, fields are numbers from 1."),
    _text_setting("--format", "Format of all inputs; auto goes by their endings.", type=click.Choice(FORMATS)),
    _text_setting("--strict", "Stop at damaged input, instead of repairing or skipping it.", is_flag=True),
)


def text_options(command: Command) -> Command:
    """The options that fill a TextConfig."""
    for option in reversed(_TEXT_OPTIONS):  # as decorators: the last one applied is the first in --help
        command = option(command)
    return command


allow_loss_option = click.option(
    "--allow-loss",
    is_flag=True,
    help="Go on if over half of the text, or of a file named as INPUT, can't be read.",
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(*RANGES["workers"]),
    metavar="N",
    show_default="one per core",
    help="Number of workers; on a cluster, the most CPUs at a time.",
)
_engine_option = click.option(
    "--engine",
    type=click.Choice(("local", "ray")),
    default="local",
    show_default=True,
    help="Work on this machine or on a Ray cluster.",
)
_address_option = click.option(
    "--address",
    metavar="HOST:PORT",
    help="Head of the Ray cluster.  [default: RAY_ADDRESS, this machine's, or a new one]",
)


def engine_options(command: Command) -> Command:
    """--workers, --engine and --address: where a command works. `open_engine` takes them.

    In `verify` workers are threads; they change no byte of a result.
    """
    return workers_option(_engine_option(_address_option(command)))


@contextmanager
def open_engine(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What `take_given` returns, with the engine in place of the options that name it.

    --workers is of a cluster the most CPUs at a time, all if it is not given. Raises ConfigError if there is no such
    cluster.
    """
    given = take_given(settings)
    gc.freeze()  # what is imported now: a collection in a forked worker would copy it all
    address = given.pop("address", None)
    if given.pop("engine", "local") == "local":
        if address is not None:
            raise click.UsageError("--address is for --engine ray")
        yield given
        return
    from albert_data.jobs.ray_engine import RayEngine

    with RayEngine(address, given.pop("workers", None)) as found:
        yield {**given, "engine": found}


normalization_option = setting(
    VocabConfig,
    "--normalization",
    "Normalisation of text: none, or albert-v2, as Google's ALBERT: without case and combining characters (accents, "
    "viramas, kana marks).",
    type=click.Choice(NORMALIZATIONS),
    metavar="RULE",
)
ALPHA = "Give each language a share by its size to this power, 0 to 1.  [default: a mixture's, or none]"


def _complete_file(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file or folder, where the value is no path alone."""
    return [CompletionItem(incomplete, type="file")]


_inputs_argument = partial(click.argument, "inputs", nargs=-1, shell_complete=_complete_file)
inputs_argument = _inputs_argument(metavar="INPUT...", required=True)
optional_inputs_argument = _inputs_argument(metavar="[INPUT]...")
validation_option = click.option(
    "--validation",
    multiple=True,
    metavar="INPUT",
    shell_complete=_complete_file,
    help="Text for the validation split; training leaves out equal documents. Repeatable.",
)
shards_argument = click.argument("shards", metavar="SHARDS", type=PLACE)
checkpoint_option = click.option(
    "--checkpoint", type=PATH, metavar="PATH", help="Checkpoint of RUN to use.  [default: the newest]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def corpus_option(help: str) -> Callable[[Command], Command]:
    """--corpus: what a shard folder was built from."""
    return click.option("--corpus", multiple=True, metavar="INPUT", shell_complete=_complete_file, help=help)
