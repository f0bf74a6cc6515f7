"""Which files in OUT belong to builds. No other file is ever replaced or removed.

In: OUT, and records of the files that builds wrote there. A file is ours if a record has its name and describes it: it
is a regular file of the recorded size or SHA-256, and none of its folders is a link. Records come from the manifest,
and from the journal of a build that was killed while it published.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from albert_data.errors import OutputError, ShardError
from albert_data.files import hash_file, is_regular, is_there, read_json, write_json
from albert_data.pipeline.card import CARD_NAME, make_card
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS, Manifest
from albert_data.shards.manifest_file import load_manifest
from albert_data.shards.schema import SHARD_SUFFIX
from albert_data.storage import FOLDER, LINK, find_kind, find_storage, is_remote
from albert_data.tokenizer.lexicon import WORDS_NAME
from albert_data.tokenizer.model import MODEL_NAMES

_TOKENIZER_FOLDER = "tokenizer"
TOKENIZER_FILES = tuple(f"{_TOKENIZER_FOLDER}/{name}" for name in MODEL_NAMES)  # a build writes one of them
WORDS_FILE = f"{_TOKENIZER_FOLDER}/{WORDS_NAME}"
_FOLDERS = (_TOKENIZER_FOLDER, *SPLITS)
_SHARD_NAME = re.compile(rf"({'|'.join(SPLITS)})/shard-\d{{5,}}\{SHARD_SUFFIX}")


@dataclass(frozen=True, kw_only=True)
class Record:
    """A file that a build wrote: its name relative to OUT, and its size in bytes, its SHA-256 or both."""

    name: str
    num_bytes: int | None = None
    sha256: str | None = None

    def describes(self, path: Path) -> bool:
        """Whether the path is a regular file, not a link, with the recorded size and hash."""
        if not is_regular(path) or self.num_bytes not in (None, find_storage(path).status(path).num_bytes):
            return False
        return self.sha256 in (None, hash_file(path))


Records = frozenset[Record]


def name_tokenizer(file_name: str) -> str:
    """The name of a tokenizer's file in OUT."""
    return f"{_TOKENIZER_FOLDER}/{file_name}"


def read_our_manifest(out: Path) -> Manifest | None:
    """The manifest of the finished build in `out`, or None. Raises OutputError if it is not as a build wrote it."""
    path = out / MANIFEST_NAME
    if not is_there(path):
        return None
    try:
        if not is_regular(path):
            raise ShardError("it is not a regular file")
        read = load_manifest(out)
        if not read.is_sealed:
            raise ShardError("it was changed since the build")
    except ShardError as error:
        raise OutputError(
            f"{path} is not as a build wrote it, so it is not replaced; move it away, or name another folder ({error})"
        ) from error
    return read.manifest


def record_files(manifest: Manifest) -> Records:
    """Records of the files that a manifest names, without the manifest itself.

    Anybody may have written a manifest, so only names that a build gives to its files count. Shards are large: their
    size is compared, not their hash. Older manifests (albert-data 0.3.0) have no entry for the card: it is made again
    from the manifest, and hashed.
    """
    card = manifest.card.sha256 if manifest.card else sha256(make_card(manifest)).hexdigest()
    return frozenset(
        [
            *(
                Record(name=name, sha256=manifest.tokenizer.sha256)
                for name in TOKENIZER_FILES
                if name == manifest.tokenizer.file
            ),
            *(Record(name=WORDS_FILE, sha256=words.sha256) for words in [manifest.words] if words),
            Record(name=CARD_NAME, sha256=card),
            *(Record(name=shard.file, num_bytes=shard.num_bytes) for shard in manifest.shards if _is_shard(shard.file)),
        ]
    )


def _is_shard(name: str) -> bool:
    return _SHARD_NAME.fullmatch(name) is not None


def write_journal(path: Path, records: Records) -> None:
    """Write records to a journal. It is needed until the manifest that names the files is written."""
    rows = sorted(([record.name, record.num_bytes, record.sha256] for record in records), key=repr)
    write_json(path, {"files": rows})


def read_journal(path: Path) -> Records:
    """The records of a journal; empty if it is missing or can't be read."""
    try:
        rows = read_json(path)["files"]
        return frozenset(Record(name=str(name), num_bytes=size, sha256=digest) for name, size, digest in rows)
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def is_ours(out: Path, name: str, records: Records) -> bool:
    return any(record.name == name and record.describes(out / name) for record in records)


def check_folders(out: Path) -> None:
    """Raise OutputError if one of the folders that a build writes to is a link, or is not a folder."""
    for path in (out / name for name in _FOLDERS):
        found = find_kind(path, follow=False)
        if found not in (None, FOLDER):
            kind = "a link" if found == LINK else "not a folder"
            raise OutputError(f"{path} is {kind}, and a build would write there; move it away, or name another folder")


def check_targets(out: Path, names: Iterable[str], records: Records) -> None:
    """Raise OutputError for the first of the names at which there is a file that is not ours."""
    check_folders(out)
    by_name: dict[str, set[Record]] = {}
    for record in records:
        by_name.setdefault(record.name, set()).add(record)
    paths = {name: out / name for name in names}
    if is_remote(out):  # to ask for each would be two requests; on a disk a name may be there in other case
        folders = {path.parent for path in paths.values()}
        listed = {folder: set(find_storage(out).list_names(folder)) for folder in folders}
        paths = {name: path for name, path in paths.items() if path.name in listed[path.parent]}
    for name, path in paths.items():
        if is_there(path) and not is_ours(out, name, frozenset(by_name.get(name, ()))):
            raise OutputError(
                f"{path} was not written by a build, or was changed since, and this build would replace it; "
                "move it away, or name another folder"
            )


def remove_stale(out: Path, records: Records, kept: Iterable[str]) -> None:
    """Remove the shards, tokenizer and word list that earlier builds wrote, except those named in `kept`."""
    names, storage, changed = set(kept), find_storage(out), set()
    for record in records:
        path = out / record.name
        is_removable = _is_shard(record.name) or record.name in (*TOKENIZER_FILES, WORDS_FILE)
        if record.name not in names and is_removable and record.describes(path):
            storage.remove(path)
            changed.add(path.parent)
    for folder in changed:
        storage.sync(folder)  # or they could be back after a crash, beside those of the new build


def find_foreign_shards(out: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield the Arrow files other than these shards. Programs that read all files of the folder would read them too."""
    ours = set(names)
    for split in SPLITS:
        for name in sorted(find_storage(out).list_names(out / split)):
            if name.endswith(SHARD_SUFFIX) and f"{split}/{name}" not in ours:
                yield f"{split}/{name}"
