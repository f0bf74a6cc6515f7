"""Mixtures: a TOML file that names the sources of a corpus, how each is read, and how often it is used.

In: the path of the file. Out: the inputs of all sources, each of which names its source.
docs/guides/mixtures.md has the keys.
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

from albert_data.config import DEFAULT_TEXT, TextConfig, check_range, swap_documents
from albert_data.corpus.conditions import join_where
from albert_data.corpus.inputs import STDIN, Input, find_inputs, place_name
from albert_data.corpus.refused import RefusedInput, RefusedInputs
from albert_data.corpus.sources import MAX_PASSES, MixtureSource
from albert_data.errors import AlbertDataError, InputError, readable
from albert_data.storage import FILE, find_kind, find_storage, make_path

Names = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
_SUFFIX = ".toml"
_MAX_BYTES = 1 << 20
_MAX_POINTS = 32  # outside of the strings of a line: tomllib takes the square of a key's parts
_STRING_OR_COMMENT = re.compile(r"""\"(?:[^"\\]|\\.)*\"?|'[^']*'?|#.*""")  # a string may lack its end
_TABLE = "source"
# Settings of TextConfig.
TEXT_KEYS = (
    *("language", "text_field", "documents", "sentences", "unwrap", "encoding", "unicode", "where"),
    *("delimiter", "quoting", "header", "format", "document_separator", "min_chars", "exclude"),
)
_KEYS = ("name", "paths", "weight", "tokens", *TEXT_KEYS)
_SHARING = {"alpha": (0, 1), "max_passes": (1, MAX_PASSES)}  # keys of the file, with their range


def is_mixture(name: str) -> bool:
    """Whether a name of the user is that of a mixture's file."""
    return name.lower().endswith(_SUFFIX) and find_kind(name) == FILE


def find_sources(
    names: Names, say: Callable[[str], None] | None = None, text: TextConfig = DEFAULT_TEXT, validation: Names = ()
) -> list[Input]:
    """The inputs of a mixture, if that is the only name; otherwise what `find_inputs` returns.

    text: for a mixture, the settings that its sources do not name. Raises InputError, in one line, for any fault.
    """
    names, validation = list_names(names), list_names(validation)
    mixtures = [name for name in (*names, *validation) if is_mixture(name)]
    if not mixtures:
        return find_inputs(names, say, text, validation)
    if validation:
        raise InputError(
            f"{mixtures[0]} is a mixture, which has no validation inputs; leave out --validation, so that a share of "
            "its documents is drawn, or name files in place of the mixture"
        )
    if len(names) > 1:
        raise InputError(f"{mixtures[0]} is a mixture, which must be the only input; name the others in sources of it")
    return find_mixture(mixtures[0], read_mixture(mixtures[0], text), say)


def find_mixture(path: str, sources: Sequence[MixtureSource], say: Callable[[str], None] | None = None) -> list[Input]:
    """The inputs of sources. path: of the file that names them, or what it is called if there is no file."""
    if any(source.text.language_field is not None for source in sources):
        raise InputError(
            f"{path} is a mixture, in which a language belongs to a source; leave out --language-field, and "
            'write language = "de" in the source'
        )
    refused: list[RefusedInput] = []
    found = [
        dataclasses.replace(item, source=source, is_named=False, found_by=(path, *item.found_by))
        for source in sources
        for item in _find_files(source, path, say, refused)
    ]
    if refused:
        error = RefusedInputs(refused)
        raise InputError(f'{path}: {error}; a source may say for itself: encoding = "auto"')
    counts = Counter(item.path for item in found)
    return [dataclasses.replace(item, is_shared=counts[item.path] > 1) for item in found]


def list_names(names: Names) -> list[str]:
    """The text of each name, also of a str of NumPy. A path of the standard library has lost a slash of s3://bucket."""
    several = (
        [names] if isinstance(names, str | os.PathLike) else list(names) if isinstance(names, Iterable) else [names]
    )
    if hasattr(names, "columns") or not all(isinstance(name, str | os.PathLike) for name in several):
        raise InputError("inputs are names of files, folders and globs; give documents in memory as documents=")
    return [str(os.fspath(make_path(name) if isinstance(name, PurePath) else name)) for name in several]


def read_mixture(path: str, text: TextConfig = DEFAULT_TEXT) -> list[MixtureSource]:
    """The sources that a file names. text: the settings that a source does not name. Raises InputError."""
    sharing = _read_toml(path)
    tables = sharing.pop(_TABLE, [])
    try:
        check_keys(sharing, (_TABLE, *_SHARING))
        for key, value in sharing.items():
            check_range(key, value, *_SHARING[key])
    except AlbertDataError as error:
        raise InputError(f"{path}: {error}") from error
    if "max_passes" in sharing and "alpha" not in sharing:
        raise InputError(f"{path}: max_passes limits what alpha gives, and there is no alpha; give both")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        tables = []
    return make_sources(path, tables, text, sharing)


def make_sources(
    path: str,
    tables: Sequence[Mapping[str, Any]],
    text: TextConfig,
    sharing: Mapping[str, Any],
    convert: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> list[MixtureSource]:
    """The sources of tables. path: as of `find_mixture`; convert: gives one the keys of a file. Raises InputError."""
    if not tables:
        raise InputError(f"{path} names no source; begin each with a line [[{_TABLE}]], in Python with a Source")
    sources: dict[str, MixtureSource] = {}
    for number, table in enumerate(tables):
        where = f"{path}, source {number + 1}"
        if isinstance(table.get("name"), str):
            where = f"{path}, source {table['name']!r:.80}"
        try:
            source = _read_source(number, convert(table), text, {} if table.get("weight") == 0 else sharing)
        except AlbertDataError as error:
            raise InputError(f"{where}: {error}") from error
        if source.name in sources:
            raise InputError(f"{path} has two sources named {source.name!r}; give each a name of its own")
        sources[source.name] = source
    return list(sources.values())


def _read_toml(path: str) -> dict[str, Any]:
    with readable(f"mixture {path}", "grant access to it"), find_storage(path).open(path) as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InputError(f"mixture {path} has over 1 MiB; name folders, globs or lists (@files.txt) in it")
    try:
        text = data.decode()
        for number, line in enumerate(text.split("\n"), 1):
            if line.count(".") > _MAX_POINTS and _STRING_OR_COMMENT.sub("", line).count(".") > _MAX_POINTS:
                raise ValueError(f"line {number} has a key of over {_MAX_POINTS} parts")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise InputError(f"mixture {path} is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"mixture {path} is no TOML: {error}; see docs/guides/mixtures.md for an example") from error


def check_keys(table: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for key in table:
        if key not in allowed:
            close = get_close_matches(str(key).lower().replace("-", "_"), allowed, n=1)
            hint = f"did you mean {close[0]}?" if close else f"allowed are {', '.join(allowed)}"
            raise InputError(f"{key!r:.80} is no known key; {hint}")


def _read_source(number: int, table: Mapping[str, Any], text: TextConfig, sharing: Mapping[str, Any]) -> MixtureSource:
    """Raises InputError or ConfigError. `paths` may be one string, and 1e9 is a whole number."""
    check_keys(table, _KEYS)
    values = dict(table)
    for key in ("name", "paths"):
        if key not in values:
            raise InputError(f"{key} is missing; every source has a name and paths")
    paths, tokens = values["paths"], values.get("tokens")
    values["paths"] = (paths,) if isinstance(paths, str) else tuple(paths) if isinstance(paths, list) else ()
    if not values["paths"] or not all(isinstance(path, str) and path for path in values["paths"]):
        raise InputError(f"paths is {paths!r:.80}; give files, folders, globs or lists (@files.txt)")
    if isinstance(tokens, float) and tokens.is_integer():
        values["tokens"] = int(tokens)
    settings = {key: values.pop(key) for key in TEXT_KEYS if key in values}
    if text.where is not None and "where" in settings:  # both hold
        settings["where"] = join_where((text.where, settings["where"]))
    if values.get("weight") == 0:  # a benchmark: its short texts count too
        settings.setdefault("min_chars", None)
    return MixtureSource(number=number, text=dataclasses.replace(text, **swap_documents(settings)), **values, **sharing)


def _find_files(
    source: MixtureSource, path: str, say: Callable[[str], None] | None, refused: list[RefusedInput]
) -> list[Input]:
    """The files of a source. refused: gets those in another encoding."""
    where = f"{path}, source {source.name!r}"
    try:
        if STDIN in source.paths:
            raise InputError("paths holds -, but a mixture can't read stdin; write the text to a file first")
        found = find_inputs([place_name(os.path.dirname(path), name) for name in source.paths], say, source.text)
    except RefusedInputs as error:
        refused += error.refused
        return []
    except AlbertDataError as error:
        raise InputError(f"{where}: {error}") from error
    for item in found:
        if item.is_stream:
            raise InputError(f"{where}: {item.path} is a pipe or device; a mixture reads files only")
        if item.language is not None:
            raise InputError(
                f"{where}: the paths name a language, as in corpus/de:de; a source has one language: write "
                'language = "de", and the others in sources of their own'
            )
    return found
