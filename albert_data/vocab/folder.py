"""The folder of a vocabulary: the model, its pieces as text, and the settings that made it.

vocab.json records the SHA-256 of the other files and of its own values. So a later `vocab` recognises the files that it
may replace, and a finished vocabulary that is not its own; and a build knows whether the vocabulary that it trained was
saved as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from albert_data.config import AS_IS, NFC, TextConfig
from albert_data.errors import OutputError, StorageError, TokenizerError
from albert_data.jobs.work_folder import WorkFolder
from albert_data.storage import FOLDER, find_kind, find_storage
from albert_data.storage.files import hash_file, is_regular, is_there, read_json, to_json
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer
from albert_data.tokenizer.tokenizer_json import JSON_NAME
from albert_data.vocab.report import VocabReport

SETTINGS_NAME, PIECES_NAME = "vocab.json", "pieces.txt"
FILES = (MODEL_NAME, PIECES_NAME, SETTINGS_NAME)
_SEAL = "settings_sha256"
_CANDIDATES = f"*-{'[0-9a-f]' * 16}.candidates"  # see reading.py


@contextmanager
def lock_folder(parent: Path) -> Iterator[Path]:
    """Lock DIR of `vocab`. Yields the folder in it for candidates; what is left there is removed before and after.

    Raises OutputError if another command uses it, or if it is not ours.
    """
    folder = WorkFolder(parent, ".vocab", "`vocab`", (_CANDIDATES, "*.lines", "*.hashes"))
    folder.lock()
    try:
        folder.drop()  # a command was killed
        yield folder.path
    finally:
        # Attempts ran late. What can't be removed now is removed by the next `vocab`. If another has taken the lock,
        # all is its own.
        with suppress(OSError, StorageError):
            folder.remove()
        folder.unlock()


def claim_folder(folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Make the folder of a vocabulary, if there is none. Called before the training too, so that it fails early.

    settings: values of its vocab.json, as far as they are known.
    Raises OutputError if one of the names is taken by a file that `vocab` did not write, if a tokenizer.json is there,
    or, unless `overwrite`, a finished vocabulary with other settings.
    """
    storage = find_storage(folder)
    try:
        storage.make_folder(folder)
        known = _read_hashes(folder)
        if is_there(folder / JSON_NAME):
            raise OutputError(f"{folder / JSON_NAME} is a vocabulary of another kind; name another folder")
        for name in FILES:
            path = folder / name
            if is_there(path) and not (is_regular(path) and known.get(name) == hash_file(path)):
                raise OutputError(
                    f"{path} was not written by `vocab`, or was changed since, and would be replaced; "
                    "move it away, or name another folder"
                )
        if not overwrite and all(is_there(folder / name) for name in FILES):
            _check_same(folder, settings)
        storage.remove_leftovers(folder)
    except OSError as error:
        raise OutputError(f"output {folder} can't be written: {error.strerror}; name another folder") from error


def _check_same(folder: Path, settings: Mapping[str, Any]) -> None:
    there = _read_settings(folder)
    for name, value in settings.items():
        if value is not None and (old := there.get(name)) != value:
            what = "its text was another" if name == "files" else f"{name} is {old!r:.80} there and {value!r:.80} here"
            raise OutputError(
                f"{folder} holds another vocabulary, of {there.get('vocab_size')} pieces ({there.get('model_type')}): "
                f"{what}; name another folder, or replace it with --overwrite"
            )


def _read_settings(folder: Path) -> dict[str, Any]:
    """The values of vocab.json. Empty if `vocab` did not write it."""
    try:
        values = read_json(folder / SETTINGS_NAME)
        return values if isinstance(values.get("files"), dict) and values.get(_SEAL) == _seal(values) else {}
    except (OSError, ValueError):
        return {}


def _read_hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of a vocabulary, as vocab.json records them. Empty if `vocab` did not write it."""
    files = _read_settings(folder).get("files")
    return {} if files is None else {**files, SETTINGS_NAME: hash_file(folder / SETTINGS_NAME)}


def check_normalization(path: Path, normalization: str) -> None:
    """Raise TokenizerError if a model or its folder is a vocabulary of `vocab`, trained with another normalization."""
    trained = _read_record(path).get("normalization", "none")
    if _read_record(path) and trained != normalization:
        raise TokenizerError(
            f"tokenizer {path} was trained on text of --normalization {trained}; pass that, not {normalization}"
        )


def check_unicode(path: Path, texts: Iterable[TextConfig]) -> None:
    """Raise TokenizerError if `vocab` trained a vocabulary on text in NFC, and some of these texts are as they are."""
    if _read_record(path).get("unicode", AS_IS) != AS_IS and any(text.unicode == AS_IS for text in texts):
        raise TokenizerError(f"tokenizer {path} was trained on text of --unicode {NFC}; pass that here, too")


def _read_record(path: Path) -> dict[str, Any]:
    """The values of the vocab.json beside a model, or in its folder; empty if `vocab` did not write it."""
    return _read_settings(path if find_kind(path) == FOLDER else path.parent)


def is_saved(folder: Path) -> bool:
    """Whether a folder holds all files of a vocabulary as `save_vocabulary` wrote them."""
    known = _read_hashes(folder)
    return all(is_regular(folder / name) and known.get(name) == hash_file(folder / name) for name in FILES)


def _seal(settings: dict[str, Any]) -> str:
    """The SHA-256 of all values except the seal itself. It shows whether a value was edited."""
    return sha256(to_json({key: value for key, value in settings.items() if key != _SEAL})).hexdigest()


def save_vocabulary(folder: Path, report: VocabReport, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the model, its pieces and the settings to a folder; returns the settings. overwrite: another finished one.

    The settings are the first file: the others are never there without them, even if this is killed, so their hashes
    in the settings show that they are ours.
    """
    model = report.trained.model
    pieces = "".join(f"{piece}\n" for piece in Tokenizer(model, str(folder)).pieces).encode()
    files = {PIECES_NAME: pieces, MODEL_NAME: model}
    settings = {
        **{name: value for name, value in report.to_dict().items() if name != "advice"},
        "files": {name: sha256(data).hexdigest() for name, data in files.items()},
    }
    settings[_SEAL] = _seal(settings)
    claim_folder(folder, {**report.config.to_dict(), "files": settings["files"]}, overwrite=overwrite)
    try:
        find_storage(folder).replace_together(folder, {SETTINGS_NAME: to_json(settings), **files})
    except OSError as error:
        raise OutputError(
            f"the vocabulary can't be written: {folder}: {error.strerror or error}; an older one there is "
            "unchanged; free some space, or name another folder"
        ) from error
    return settings
