"""Which files in OUT belong to builds. No other file is ever replaced or removed.

OUT is new, empty or ours: it holds a manifest as a build wrote it, or a .build with our mark. There a file is ours if
a manifest names it and it is a regular file of the size or SHA-256 in that manifest, in a folder that is no link. The
manifests are that of OUT, and those that a publication keeps in .build.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from albert_data.errors import OutputError, ShardError
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS, Manifest
from albert_data.shards.manifest_file import load_manifest
from albert_data.shards.paths import CARD_NAME
from albert_data.shards.schema import SHARD_SUFFIX
from albert_data.storage import FOLDER, LINK, find_kind, find_storage, remember_listings
from albert_data.storage.files import hash_file, is_regular, is_there
from albert_data.text.wording import count_of
from albert_data.tokenizer.lexicon import WORDS_NAME
from albert_data.tokenizer.model import MODEL_NAMES

_TOKENIZER_FOLDER = "tokenizer"
WORDS_FILE = f"{_TOKENIZER_FOLDER}/{WORDS_NAME}"
_SHARD_NAME = re.compile(rf"({'|'.join(SPLITS)})/shard-[0-9]{{5,}}{re.escape(SHARD_SUFFIX)}")


def name_tokenizer(file_name: str) -> str:
    """The name of a tokenizer's file in OUT."""
    return f"{_TOKENIZER_FOLDER}/{file_name}"


_TOKENIZER_FILES = {*map(name_tokenizer, MODEL_NAMES), WORDS_FILE}


def check_empty(out: Path, noun: str = "build") -> None:
    """Raise OutputError unless OUT is missing or empty. Hidden files, as those of systems and of git, do not count."""
    if names := sorted(name for name in find_storage(out).list_names(out) if not name.startswith(".")):
        more = f" and {count_of(len(names) - 1, 'other name')}" if len(names) > 1 else ""
        raise OutputError(f"{out} holds {names[0]}{more}, but no {noun}; name a new or empty folder")


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
            f"{path} is not as a build wrote it, so nothing there is replaced; name a new or empty folder ({error})"
        ) from error
    return read.manifest


class Ours:
    """The files in OUT that manifests name.

    Anybody may have written a manifest, so only names that a build gives to its files count.
    """

    def __init__(self, out: Path, manifests: Iterable[Manifest]) -> None:
        self._out = out
        self._files = defaultdict[str, set[int | str]](set)
        for name, content in (entry for manifest in manifests for entry in _list_files(manifest)):
            if name == CARD_NAME or _is_name(name):
                self._files[name].add(content)

    def holds(self, name: str) -> bool:
        """Whether OUT holds a file of this name as a manifest describes it."""
        path, known = self._out / name, self._files.get(name)
        if not known or not is_regular(path):
            return False
        if _SHARD_NAME.fullmatch(name):
            return find_storage(path).status(path).num_bytes in known
        return hash_file(path) in known

    def check(self) -> None:
        """Raise OutputError for a file that is not ours but has a name that builds give, and for a folder's link.

        The card is no obstacle: one that was edited stays.
        """
        for folder in (_TOKENIZER_FOLDER, *SPLITS):
            path = self._out / folder
            if (found := find_kind(path, follow=False)) not in (None, FOLDER):
                kind = "a link" if found == LINK else "not a folder"
                raise OutputError(f"{path} is {kind}, and a build would write there; move it away")
            with remember_listings():
                for name in find_storage(path).list_names(path):
                    # On some disks two names are the same in upper and lower case.
                    if _is_name(f"{folder}/{name.lower()}") and not self.holds(f"{folder}/{name}"):
                        raise OutputError(
                            f"{path / name} was not written by a build, or was changed since, and a build would "
                            "replace it; move it away, or name a new or empty folder"
                        )

    def remove(self, kept: Collection[str]) -> None:
        """Remove these files, except the card and those named in `kept`."""
        storage = find_storage(self._out)
        with remember_listings():
            for folder in (_TOKENIZER_FOLDER, *SPLITS):
                storage.list_names(self._out / folder)
            others = self._files.keys() - {CARD_NAME, *kept}
            paths = [self._out / name for name in others if self.holds(name)]
        storage.remove_all(paths)
        for parent in {path.parent for path in paths}:
            storage.sync(parent)  # or they could be back after a crash, beside those of the new build


def _list_files(manifest: Manifest) -> Iterator[tuple[str, int | str]]:
    """The files that a manifest names, with the size of a shard, which is large, or the SHA-256 of another file."""
    if manifest.card is not None:  # `publish` makes the card last
        yield CARD_NAME, manifest.card.sha256
    yield manifest.tokenizer.file, manifest.tokenizer.sha256
    if manifest.words:
        yield WORDS_FILE, manifest.words.sha256
    yield from ((shard.file, shard.num_bytes) for shard in manifest.shards)


def _is_name(name: str) -> bool:
    """Whether a build gives this name to a shard or a file of the tokenizer."""
    return name in _TOKENIZER_FILES or _SHARD_NAME.fullmatch(name) is not None


def find_foreign_shards(out: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield the Arrow files other than these shards. Programs that read all files of the folder would read them too."""
    ours = set(names)
    for split in SPLITS:
        for name in sorted(find_storage(out).list_names(out / split)):
            if name.endswith(SHARD_SUFFIX) and f"{split}/{name}" not in ours:
                yield f"{split}/{name}"
