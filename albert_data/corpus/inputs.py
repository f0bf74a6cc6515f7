"""Find the files of a corpus and open them.

In: what the user named: files, folders, globs, lists, pipes. Out: a sorted list of `Input`, each of a known format.
Text of another encoding is transcoded to UTF-8 if a byte order mark or the settings name it, or if the settings let
each file decide; otherwise it is refused, judged by the first 64 KB (encodings.py).
"""

from __future__ import annotations

import dataclasses
import glob
import io
import os
import re
import stat
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import cast

from albert_data.config import AUTO, DEFAULT_TEXT, TextConfig
from albert_data.corpus.blocks import Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import name_field
from albert_data.corpus.formats.csv_files import OF_NAME, find_delimiter
from albert_data.corpus.formats.recognition import (
    ALLOWED_NAMES,
    COMPRESSIONS,
    SPLIT,
    TABLES,
    find_command,
    find_contradiction,
    find_json,
    has_fields,
    is_compressed,
    match_name,
    recognise,
)
from albert_data.corpus.formats.saved_datasets import (
    DESCRIPTIONS,
    SPLITS,
    STATE,
    list_data_files,
    list_other_splits,
)
from albert_data.corpus.formats.tables import list_begins
from albert_data.corpus.lines.encodings import (
    SAMPLE_BYTES,
    UTF8,
    check_encoding,
    describe_encodings,
    find_encoding,
    refuse,
    transcode,
)
from albert_data.corpus.refused import RefusedInput, RefusedInputs, group_paths
from albert_data.corpus.sources import MixtureSource
from albert_data.corpus.streams import STREAM_ERRORS, decompress, join_parts
from albert_data.errors import InputError, readable
from albert_data.storage import (
    DEVICE,
    FILE,
    FOLDER,
    LINK,
    PIPE,
    SOCKET,
    Status,
    find_kind,
    find_storage,
    is_remote,
    remember_listings,
    strip_file_scheme,
)
from albert_data.storage.hub import SCHEME, find_files
from albert_data.text.languages import is_language, normalise_language
from albert_data.text.wording import list_some

# ---- which files of a folder or a glob are not read, and why ----
#
# Each reason is one line, with a few names and the number of the others: a folder may hold thousands.

SHOWN = 3  # files of each reason, and inputs of each encoding
_TO_READ = "; name one as an input to read it"
HIDDEN, UNKNOWN, FOLDER_LINK, NO_DATA, OTHER_SPLIT = "hidden", "unknown", "link", "no data", "split"
PACKED = "packed"
# What each reason stands for, and the advice after the names.
_EXCLUDED = "--exclude "  # before the pattern: also a reason
_MAGIC = re.compile(r"[^/]*[*?[].*")  # all but the folders that a glob begins with
_REASONS = {
    UNKNOWN: ("files of no known ending", f"; readable are {ALLOWED_NAMES}"),
    NO_DATA: ("files beside the data of a data set", ""),
    OTHER_SPLIT: ("splits of a data set that has a split train", _TO_READ),
    HIDDEN: ("hidden files or folders", _TO_READ),
    FOLDER_LINK: ("links to folders", _TO_READ),
    PIPE: ("pipes, no files", _TO_READ),
    SOCKET: ("sockets, no files", ""),
    DEVICE: ("devices, no files", _TO_READ),
}
Skipped = defaultdict[str, list[str]]  # paths by reason


def _excludes(text: TextConfig, path: str, base: str, skipped: Skipped, *, is_folder: bool = False) -> bool:
    """Whether `exclude` leaves out a path, or a folder around it below `base`. If so, it is put into `skipped`.

    A pattern is compared with the name, and with the path from `base` on; if it ends in a slash, of folders alone.
    """
    parts = path.removeprefix(base).strip("/").split("/")
    for pattern in text.exclusions:
        for number, name in enumerate(parts, 1):
            is_kind = is_folder or number < len(parts) or not pattern.endswith("/")
            if is_kind and any(fnmatchcase(one, pattern.strip("/")) for one in ("/".join(parts[:number]), name)):
                skipped[_EXCLUDED + pattern].append(path)
                return True
    return False


def _describe_skipped(skipped: Skipped, *, with_advice: bool) -> Iterator[str]:
    """A line for each reason, and for each kind of packed files. with_advice: how to read such files."""
    others = {reason: (f"files and folders by {reason}", "") for reason in skipped if reason.startswith(_EXCLUDED)}
    reasons = (_REASONS | others).items()
    lines = [(what, with_advice * advice, skipped.get(reason, [])) for reason, (what, advice) in reasons]
    for kind, paths in group_paths((find_command(path)[0], path) for path in skipped.get(PACKED, ())).items():
        lines.append((f"{kind} files", f"; {find_command(paths[0])[1]}", paths))
    for what, advice, paths in lines:
        if paths:
            yield f"skipped {what} ({len(paths):,}): {list_some(paths, SHOWN)}{advice}"


# ---- lists of inputs: `@files.txt` stands for the names in files.txt, a path or glob on each line ----


def is_list(name: str) -> bool:
    """Whether a name of the user stands for a list: it begins with @, and no file has it as a whole."""
    return name.startswith("@") and find_kind(name, follow=False) is None


def read_list(path: str) -> list[str]:
    """The names in a list, relative to the folder of the list; to the present folder if the list is a pipe.

    Raises InputError if it can't be read, or names nothing.
    """
    with readable(f"list {path}", "give a file with a path on each line"):
        is_file = find_kind(path) == FILE
        with find_storage(path).open(path) if is_file else open(path, "rb") as file:
            folder = os.path.dirname(path) if is_file else ""
            data = file.read()
    names = [name for line in data.split(b"\n") if (name := os.fsdecode(line.strip(b"\r"))).strip()]
    if not names:
        raise InputError(f"list {path} names no input; write a path or glob on each line")
    return [place_name(folder, name) for name in names]


def place_name(folder: str, name: str) -> str:
    """The path of a name that is relative to a folder; in a glob, the folder stands for itself even if it holds `[`.

    Raises StorageError for the URL of no store.
    """
    name = strip_file_scheme(name)
    if name.startswith(SCHEME) or is_remote(name):
        return name
    find_storage(name)
    path = os.path.join(folder, name)
    if name.startswith("@") and find_kind(path, follow=False) is None:
        return "@" + os.path.join(folder, name[1:])
    if glob.has_magic(name) and find_kind(path, follow=False) is None:
        return os.path.join(glob.escape(folder), name)
    return path


# ---- inputs ----

STDIN = "-"
_SMALL_BYTES = 16 << 20
_BLOCK_BYTES = 1 << 20
_OFFICE_LOCK = "~$"  # office programs keep ~$notes.docx beside an open document
_HIDDEN = (".", _OFFICE_LOCK)

# Beginnings of paths that are read as streams: the open files of a process, which may be pipes (/dev/fd/3), and files
# that show no size (/proc/version).
_STREAM_PATHS = ("/dev/stdin", "/dev/fd/", "/proc/")


@dataclass(frozen=True, kw_only=True)
class Input:
    """One file of a corpus, or a stream: stdin, a pipe, a device, which can be read once.

    format: AUTO for a stream whose name does not show it
    size: bytes on the disk, 0 for a stream
    modified_ns: nanoseconds since the epoch, 0 for a stream
    encoding: the one that the settings or a byte order mark names, or that was found; None if none is, or if no mark
        has been read yet (compressed files, streams)
    is_encoding_found: whether all of the file was read to find it
    language: None if the build has one language
    begins: of a table, the bytes at which its parts begin
    source: of a mixture, None for other inputs
    found_by: the lists and the mixture that name it
    folders: those that were named and hold it
    is_validation: whether the user named it for validation
    is_named: whether the user named the file itself, not a folder, glob or list with it
    oddity: what its first bytes show that its name does not, and what follows from that
    is_shared: whether other sources have it too
    place: where the file is, if `path` is a name that does not say it, of documents from memory
    found: its status when it was found; None if nothing is compared with it when it is opened, as for a stream
    skipped: of the first input, what the names led to that is not read: paths by reason
    """

    path: str
    format: str
    compression: str | None
    size: int = 0
    modified_ns: int = 0
    is_stream: bool = False
    encoding: str | None = None
    is_encoding_found: bool = False
    language: str | None = None
    begins: tuple[int, ...] = ()
    source: MixtureSource | None = None
    found_by: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    is_validation: bool = False
    is_named: bool = False
    oddity: str | None = None
    is_shared: bool = False
    place: str | None = None
    found: Status | None = None
    skipped: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def origin(self) -> Origin:
        return Origin(self.path, self.format, self.language, place=self.place, found=self.found)

    @property
    def is_splittable(self) -> bool:
        """Whether workers can read it: each a range of it, or one all of it, if it is small."""
        is_plain = self.compression is None and not self.is_stream and self.encoding in (None, UTF8)
        return is_plain and (self.format in SPLIT or self.size <= _SMALL_BYTES)


def find_inputs(
    names: Sequence[str],
    say: Callable[[str], None] | None = None,
    text: TextConfig = DEFAULT_TEXT,
    validation: Sequence[str] = (),
) -> list[Input]:
    """Resolve files, folders (with all folders in them), globs, pipes, lists (`@files.txt`) and `-`.

    Each file comes once, sorted by path; those that `validation` names are listed after all others.

    A name may end in a colon and a language, as `corpus/de:de`, unless there is a file of the whole name. If any
    name ends so, each input has a language: its own, or that of the settings.
    say: prints what is skipped. No pipe is opened.
    Raises InputError if a name leads to nothing, or if a file has no known format or encoding or is given two
    languages, and StorageError for a store that can't be read. All files in another encoding are one error,
    RefusedInputs.
    """
    refused, skipped = dict[object, RefusedInput](), defaultdict[str, list[str]](list)
    say = say or (lambda line: None)
    with remember_listings():
        items, for_validation = (
            sorted(_find_all(some, say, text, refused, skipped), key=lambda item: item.path)
            for some in (names, validation)
        )
    if refused:
        raise RefusedInputs(list(refused.values()))
    found = [(item.encoding or UTF8, item.path) for item in (*items, *for_validation) if item.is_encoding_found]
    if found:
        say(f"encodings found: {'; '.join(describe_encodings(found, SHOWN))}")
    odd = group_paths((item.oddity, item.path) for item in (*items, *for_validation) if item.oddity)
    for oddity, paths in odd.items():
        say(f"{list_some(paths, SHOWN)}: {oddity}")
    streams = {_identify(item.path) for item in for_validation if item.is_stream}
    if streams and any(_identify(item.path) in streams for item in items if item.is_stream):
        raise InputError("one stream is named for training and for validation, but can be read only once; give files")
    for some, kept in ((names, items), (validation, for_validation)):
        if some and not kept:
            raise InputError(f"--exclude leaves out all files of {list_some(some, SHOWN)}; exclude less")
    items += [replace(item, is_validation=True) for item in for_validation]
    if text.where is not None and (bare := [item.path for item in items if not has_fields(item.format)]):
        raise InputError(f"input {bare[0]} has no fields, which --where {text.where!r:.80} needs; leave one out")
    if any(item.language for item in items):
        items = [replace(item, language=item.language or text.language) for item in items]
    items[:1] = [replace(item, skipped=skipped) for item in items[:1]]
    return items


def _find_all(
    names: Sequence[str],
    say: Callable[[str], None],
    text: TextConfig,
    refused: dict[object, RefusedInput],
    skipped: Skipped,
) -> Iterable[Input]:
    found: dict[object, Input] = {}
    for name, language, found_by in _split_names(names, say):
        beside: Skipped = defaultdict(list)
        is_out = found_by and _excludes(text, name, os.path.dirname(found_by[0]), beside)
        paths = {path: _identify(path) for path in (() if is_out else _expand(name, beside, text))}
        for line in _describe_skipped(beside, with_advice=True):
            say(line)
        for reason, others in beside.items():
            skipped[reason] += others
        new = [path for path, identity in paths.items() if identity not in found]
        described = find_storage(name).at_once(partial(_describe, text=text), new)
        items = dict(zip(new, described, strict=True))
        is_folder = any(path != name for path in paths) and (not glob.has_magic(name) or find_kind(name) == FOLDER)
        folders = (name,) if is_folder else ()
        refused |= {paths[path]: item for path, item in items.items() if isinstance(item, RefusedInput)}
        for path, identity in paths.items():
            item = found.get(identity) or items[path]
            if isinstance(item, RefusedInput):
                continue
            if language and item.language not in (None, language):
                raise InputError(
                    f"input {path} is given two languages, {item.language} and {language}; name it with one of them"
                )
            found_by = tuple(dict.fromkeys((*item.found_by, *found_by)))
            is_named = item.is_named or (path == name and not found_by)
            item = replace(item, language=language or item.language, found_by=found_by, is_named=is_named)
            found[identity] = replace(item, folders=item.folders + folders)
    return found.values()


def check_apart(inputs: Iterable[Input], out: Path) -> None:
    """Raise InputError if a folder that was named holds `out`, whose files the next command would read, or is in it."""

    def resolve(name: str | Path) -> Path:
        return Path(find_storage(name).resolve(name))  # of a URL too: only its parts are compared

    here, around = resolve(out), {folder for item in inputs for folder in item.folders}
    files = {item.origin.file for item in inputs if not item.is_stream} if find_kind(out) else ()
    # A million files have fewer folders. A link may lead from elsewhere into `out`.
    places = {os.path.dirname(file): file for file in files}
    places |= {file: file for file in files if find_kind(file, follow=False) == LINK}
    overlapping = [name for name in sorted(around) if here.is_relative_to(resolve(name))]
    overlapping += [places[name] for name in sorted(places) if resolve(name).is_relative_to(here)]
    if overlapping:
        raise InputError(
            f"{out} and the input {overlapping[0]} overlap: what is written there would be read as text; "
            "choose another --output, outside of the inputs"
        )


def check_fields(inputs: Sequence[Input], text: TextConfig) -> None:
    """Raise InputError if the settings name a field of languages, groups or ids, and no input can have fields."""
    named = {"--language-field": text.language_field, "--group-field": text.group_field, "--id-field": text.id_field}
    for option, name in named.items():
        if name is not None and not any(has_fields(item.format) for item in inputs):
            raise InputError(
                f"all inputs are .txt files or articles, which have no fields such as {name!r}; leave out {option}, or "
                "give records (.jsonl, .csv, .parquet). The language of all is named by --language, of one by "
                "INPUT:LANGUAGE"
            )
    texts = [(item.language, item.source.text if item.source else text) for item in inputs]
    used = {language or one.language for language, one in texts if one.sentences == "prose"}
    added = {line.split()[0] for line in (text.abbreviations or "").splitlines()}
    if added and not added & used and text.language_field is None:
        where = ", ".join(sorted(used)) or "text with --sentences lines"
        raise InputError(f"--abbreviations has none for {where}; add some, or leave it out")


def list_texts(inputs: Iterable[Input], text: TextConfig) -> set[TextConfig]:
    """How the inputs are read: those of a mixture by the settings of their sources."""
    return {item.source.text if item.source else text for item in inputs}


def list_unmatched(inputs: list[Input], text: TextConfig) -> list[str]:
    """A line for each pattern of `exclude` that matches nothing."""
    patterns = {_EXCLUDED + one for how in list_texts(inputs, text) for one in how.exclusions}
    unmatched = sorted(patterns.difference(*(item.skipped for item in inputs)))
    return [f"{one} matches no file or folder below the inputs; check the pattern" for one in unmatched]


def check_where(inputs: Sequence[Input], text: TextConfig, damage: Damage) -> None:
    """Raise InputError if no record has a field that the settings compare. damage: of all inputs."""
    texts = list_texts(inputs, text)
    if missing := {one.field for text in texts for one in text.conditions} & damage.unmatched - damage.matched:
        name = name_field(min(missing))
        raise InputError(f"no record has the field {name} that --where names, or it is null in all; check the name")


def count_bytes(inputs: list[Input]) -> int | None:
    """Bytes on the disk; None if an input is a pipe, whose size nobody knows."""
    return None if any(item.is_stream for item in inputs) else sum(item.size for item in inputs)


def check_reach(inputs: list[Input], *, spans_machines: bool) -> None:
    """Raise InputError for an input that workers on other machines can't read, since it is no file."""
    streams = [item.path for item in inputs if item.is_stream or item.place]
    if streams and spans_machines:
        name = "stdin" if streams[0] == STDIN else streams[0]
        raise InputError(
            f"{name} can be read by this process only, not by the nodes of a cluster; write the text to files that all "
            "nodes see"
        )


def list_samples(inputs: list[Input]) -> list[str]:
    """A file of each folder with inputs, of sixteen folders at most."""
    by_folder = {os.path.dirname(item.origin.file): item.origin.file for item in inputs if not item.is_stream}
    return list(islice(by_folder.values(), 16))


def _split_names(names: Sequence[str], say: Callable[[str], None]) -> Iterator[tuple[str, str | None, tuple[str, ...]]]:
    """Names and those of lists, each with its language and its list; one of a list may have the language of the list.

    Raises StorageError for the URL of no store.
    """
    look_up = partial(find_files, say=say)
    for name in chain.from_iterable(map(look_up, map(strip_file_scheme, names))):
        find_storage(name)  # raises StorageError
        if not is_list(name):
            yield *split_language(name), ()
            continue
        path, language = split_language(strip_file_scheme(name[1:]))
        for inner, own in map(split_language, chain.from_iterable(map(look_up, read_list(path)))):
            yield inner, own or language, (path,)


def split_language(name: str) -> tuple[str, str | None]:
    """The path in a name of the user, and the language after its last colon, None if there is none."""
    path, colon, code = name.rpartition(":")
    if not colon or not path or not is_language(code) or find_kind(name, follow=False):
        return name, None
    if any(find_storage(name).glob(name)):
        return name, None
    return path, normalise_language(code)


def _identify(path: str) -> object:
    """A value that is equal for two names of one file: for a regular file its real path (so hard links are two files).

    Streams are compared by device and inode, because one pipe may have several names, such as - and /dev/fd/0.
    """
    try:
        status = os.fstat(sys.stdin.fileno()) if path == STDIN else os.stat(path)
    except (AttributeError, OSError, ValueError):  # stdin may be no file
        return path
    is_file = stat.S_ISREG(status.st_mode) and path != STDIN and not _is_stream_path(path)
    return find_storage(path).resolve(path) if is_file else (status.st_dev, status.st_ino)


def _is_stream_path(path: str) -> bool:
    return os.path.abspath(path).startswith(_STREAM_PATHS)


def _expand(name: str, skipped: Skipped, text: TextConfig) -> Iterable[str]:
    if name == STDIN:
        return [STDIN]
    if (kind := find_kind(name)) is not None:
        return _walk(name, skipped, text) if kind == FOLDER else [name]
    matches = list(_choose_files(find_storage(name).glob(name), skipped))
    if not matches:
        kind = "matches no file" if glob.has_magic(name) else "does not exist"
        raise InputError(
            f"input {name} {kind}; name files, folders, globs in quotes, hf://datasets/OWNER/NAME, or - for stdin"
        )
    return [path for path in matches if not _excludes(text, path, _MAGIC.sub("", name), skipped)]


def _walk(folder: str, skipped: Skipped, text: TextConfig) -> list[str]:
    found: list[str] = []
    for root, folders, files in find_storage(folder).walk(folder, _refuse_folder):
        known, is_folder, names, out = list[str](), set(folders), sorted([*folders, *files]), set[str]()
        # A store gives each file in an answer of its own, so nothing that is not there is asked for.
        others = list_other_splits(root) if SPLITS in names else []
        data = list_data_files(root) if STATE in names else None
        for name in names:
            path = os.path.join(root, name)
            is_data = data is None or path in data
            if _excludes(text, path, folder, skipped, is_folder=name in is_folder):
                out.add(name)
            elif name in others:
                skipped[OTHER_SPLIT].append(path)
            elif name not in is_folder and (
                name in DESCRIPTIONS or (not is_data and (text.format != AUTO or match_name(name)))
            ):
                skipped[NO_DATA].append(path)
            elif name.startswith(_HIDDEN):
                skipped[HIDDEN].append(path)
            elif name in is_folder:
                if find_kind(path, follow=False) == LINK:
                    skipped[FOLDER_LINK].append(path)
            elif recognise(path, text.format) is None:
                skipped[PACKED if find_command(name)[0] else UNKNOWN].append(path)
            else:
                known.append(path)
        folders[:] = sorted(name for name in folders if not name.startswith(_HIDDEN) and name not in {*others, *out})
        found += _choose_files(known, skipped)
    if not found and not any(reason.startswith(_EXCLUDED) for reason in skipped):
        reasons = "; ".join(_describe_skipped(skipped, with_advice=False))
        reason = f" ({reasons})" if reasons else ""
        raise InputError(f"folder {folder} holds no readable file{reason}; readable are {ALLOWED_NAMES}")
    return found


def _refuse_folder(error: OSError) -> None:
    raise InputError(
        f"folder {error.filename} can't be read: {error.strerror}; grant access to it, or name other inputs"
    ) from error


def _choose_files(paths: Iterable[str], skipped: Skipped) -> Iterator[str]:
    """Drop folders, and skip what is no regular file: reading a pipe may wait for ever."""
    for path in paths:
        kind = _read_status(path).kind
        if os.path.basename(path).startswith(_OFFICE_LOCK):
            skipped[HIDDEN].append(path)
        elif kind == FILE:
            yield path
        elif kind != FOLDER:
            skipped[kind].append(path)


def _read_status(path: str) -> Status:
    with _readable(path):
        return find_storage(path).status(path)


def _readable(path: str) -> AbstractContextManager[None]:
    return readable(f"input {path}", "grant access to it or restore it, or name other inputs")


def _describe(path: str, text: TextConfig) -> Input | RefusedInput:
    """An input, or why it can't be read: so the user learns of all such files at once."""
    status = None if path == STDIN else _read_status(path)
    if status is None or status.kind != FILE or _is_stream_path(path):
        return _describe_stream(path, status, text)
    try:
        with _readable(path):
            return _describe_fields(_describe_file(path, status, text), text)
    except RefusedInput as error:
        return error


def _describe_stream(path: str, status: Status | None, text: TextConfig) -> Input:
    """Stdin (without a status), a pipe or a device."""
    format, compression, encoding = text.format, None, text.encoding
    if status is None:
        if sys.stdin is None:
            raise InputError("input - is closed: this process has no stdin; name files, or pipe text into it")
    elif status.kind == SOCKET:
        raise InputError(f"input {path} is a socket, which can't be opened; name files, pipes, or - for stdin")
    else:
        format, compression = recognise(path, format) or (
            AUTO,
            COMPRESSIONS.get(os.path.splitext(path.lower())[1]),
        )
    if format in TABLES:
        raise InputError(f"input {path} is a pipe or device, and a table can't be read from one; give a file")
    if encoding == AUTO:
        raise InputError(
            f"input {path} can be read only once, so its encoding can't be found first; name it by --encoding, or give "
            "a file"
        )
    return Input(path=path, format=format, compression=compression, is_stream=True, encoding=encoding)


def _describe_file(path: str, status: Status, text: TextConfig) -> Input:
    """Raises RefusedInput for a file in another encoding or format, or of no text, and OSError."""
    matched, encoding = recognise(path, text.format), text.encoding
    if matched is None:
        if path.lower().endswith(".toml"):
            raise InputError(f"input {path}: a mixture must be the only input, without a language or a list around it")
        if (packed := find_command(path))[0]:
            raise InputError(f"input {path} is a {packed[0]} file, which is not read; {packed[1]}")
        raise InputError(f"input {path} is of no known kind; readable are {ALLOWED_NAMES}")
    item = Input(
        path=path,
        format=matched[0],
        compression=matched[1],
        size=status.num_bytes,
        modified_ns=status.modified_ns,
        encoding=encoding,
        found=status,
    )
    with item.origin.open_file() as file:
        sample = file.read(SAMPLE_BYTES)
    if item.format in TABLES:
        _check_named(item, sample, text.format)
        return replace(item, encoding=None)
    is_odd = item.compression is not None and not is_compressed(sample, item.compression)
    if encoding == AUTO:
        with _open(item)[0] as stream:
            found = find_encoding(_read_blocks(stream))
        if found.codec is None:
            raise refuse(path, found)
        item = replace(item, encoding=found.codec, is_encoding_found=True)
    elif item.compression is None:
        marked = check_encoding(sample, path, encoding)
        item = replace(item, encoding=marked or encoding)
    if is_odd:
        ending = os.path.splitext(path)[1]
        oddity = f"not compressed as the name says, so nothing of it can be read; name it without {ending}"
        return replace(item, oddity=oddity)
    is_judged = item.format == "jsonl" or text.format != AUTO  # by what it holds, not only by its name
    if is_judged and (item.compression or item.encoding not in (None, UTF8)):
        with open_input(item)[0] as stream:
            sample = read_beginning(stream)[0]
    _check_named(item, sample, text.format)
    if item.format == "jsonl" and (json := find_json(sample)):
        return replace(item, format="json", oddity=f"{json}, so it is read as a .json file")
    return item


def _check_named(item: Input, beginning: bytes, format: str) -> None:
    """Raise RefusedInput for a file that begins otherwise than the format that the user names for all."""
    if format != AUTO and (look := find_contradiction(format, beginning)):
        raise RefusedInput(item.path, f"{look}, not {format}, as --format says", "leave --format out, or the file")


def _describe_fields(item: Input, text: TextConfig) -> Input:
    """The input, with what its schema or header shows. Raises RefusedInput if it has none of the text fields."""
    if item.format in TABLES:
        return replace(item, begins=tuple(list_begins(item.origin, text)))
    if item.format in OF_NAME:
        with open_input(item)[0] as stream:
            delimiter = find_delimiter(stream, item.origin, text)
        if delimiter != OF_NAME[item.format]:
            return replace(item, oddity=f"its delimiter is {delimiter!r}")
    return item


def _read_blocks(stream: io.BufferedIOBase) -> Iterator[bytes]:
    with suppress(*STREAM_ERRORS):  # that a stream is damaged is told when its text is read
        yield from _read_on(*read_beginning(stream), stream)


def open_input(item: Input, *, strict: bool = False) -> tuple[io.BufferedIOBase, Callable[[], int]]:
    """Open an input for reading from the start, decompressed, as UTF-8.

    Also returns what counts the bytes of the file that were read: compressed ones, 0 for a stream.
    strict: raise InputError when transcoding meets bytes that can't be decoded.
    Raises InputError if the beginning is in an encoding that neither the settings nor a byte order mark names.
    """
    with _readable(item.path):
        stream, count_read = _open(item)
    encoding = item.encoding
    # A plain file of another encoding was checked when it was found.
    if not item.is_encoding_found and (encoding in (None, UTF8) or item.is_stream or item.compression):
        try:
            beginning, failure = read_beginning(stream)
            encoding = check_encoding(beginning, item.path, encoding)
        except InputError:
            stream.close()
            raise
        stream = join_parts(_read_on(beginning, failure, stream), stream)
    if encoding not in (None, UTF8):
        stream = join_parts(transcode(stream, encoding, item.path, strict=strict), stream)
    return stream, count_read


def read_beginning(stream: io.BufferedIOBase, num_bytes: int = SAMPLE_BYTES) -> tuple[bytes, Exception | None]:
    """The first bytes of a stream, and what ended them if it is damaged there."""
    taken = bytearray()
    try:
        while len(taken) < num_bytes and (data := stream.read1(num_bytes - len(taken))):
            taken += data
    except STREAM_ERRORS as error:
        return bytes(taken), error
    return bytes(taken), None


def _read_on(beginning: bytes, failure: Exception | None, stream: io.BufferedIOBase) -> Iterator[bytes]:
    """All of a stream whose beginning is already read."""
    yield beginning
    if failure is not None:
        raise failure
    while data := stream.read1(_BLOCK_BYTES):
        yield data


def _open(item: Input) -> tuple[io.BufferedIOBase, Callable[[], int]]:
    """The stream, decompressed, and what counts the bytes of the file that were read for it."""
    if item.path == STDIN:
        # A buffer of our own, because the interpreter aborts if it exits while a thread waits in the one of sys.stdin.
        raw = getattr(sys.stdin.buffer, "raw", None)
        return io.BufferedReader(raw) if raw else cast(io.BufferedIOBase, sys.stdin.buffer), lambda: 0
    file = io.FileIO(item.path) if item.is_stream else item.origin.open_file().detach()
    stream = decompress(file, item.compression, item.path) if item.compression else io.BufferedReader(file)
    return stream, (lambda: 0) if item.is_stream else file.tell
