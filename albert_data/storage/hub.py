"""Names on the Hugging Face Hub, and where huggingface_hub keeps what they name.

In: the name of a model, OWNER/NAME or NAME, or the Parquet files of a data set, hf://datasets/OWNER/NAME/PATH, where
PATH is a folder, a file or a glob of files, or is missing; each with @REVISION, a branch, tag or commit, behind NAME;
of a data set %2F is a slash in it, which refs/pr/N and refs/convert/parquet may have. Out: paths in huggingface_hub's
cache. It downloads the files of one commit there, and knows the token and HF_HUB_OFFLINE; from then on they are files
like others. A name without a file name of a path that exists on the disk is never looked up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote

from albert_data.errors import StorageError
from albert_data.text.wording import count_of, list_some

SCHEME = "hf://"
TOKENIZER_FILES = ("*.model", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
MODEL_FILES = (*TOKENIZER_FILES, "config.json", "model.safetensors")
_MODEL = re.compile(r"([A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@([\w./-]+))?")
_ENDINGS = (".model", ".json", ".txt")  # of the path of a tokenizer
_DATASET = re.compile(
    r"hf://datasets/([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(refs/\w+/[\w.-]+|[\w.%-]+))?/?([^:]*)(:[\w-]+)?"
)
# The split that a name of a file or folder says, in the words that `datasets` knows; the last one in a path counts.
_SPLIT = re.compile(r"(?i)(?<![a-z])(?:train(?:ing)?|val(?:id(?:ation)?)?|dev|test(?:ing)?|eval(?:uation)?)(?![a-z])")
_CACHED = re.compile(r"datasets--([^/]+)/snapshots/([0-9a-f]{40})/(.+)")
# The commits that names mean because an older plan says so, and those of the names that were looked up.
_commits: ContextVar[tuple[Mapping[str, str], dict[str, str]]] = ContextVar("commits")


@contextmanager
def use_commits(known: Mapping[str, str] | None) -> Iterator[None]:
    """Let names mean these commits inside; all other names mean the newest one."""
    token = _commits.set((known or {}, {}))
    try:
        yield
    finally:
        _commits.reset(token)


def list_commits() -> dict[str, str] | None:
    """The commit of each name that was looked up inside `use_commits`; None for none."""
    return _commits.get(({}, {}))[1] or None


def is_model(name: str | os.PathLike[str]) -> bool:
    """Whether a text may be the name of a model: no path is there, and it does not end as that of a tokenizer."""
    is_name = isinstance(name, str) and _MODEL.fullmatch(name) is not None
    return is_name and not os.fspath(name).endswith(_ENDINGS) and not os.path.lexists(name)


def find_model(name: str | os.PathLike[str], files: Sequence[str]) -> str | os.PathLike[str]:
    """The folder of a model's files in the cache; what is no name of a model, as it is. Raises StorageError."""
    if not is_model(name) or not (found := _MODEL.fullmatch(os.fspath(name))):
        return name
    return _download(os.fspath(name), "model", found[1], found[2], files)


def find_files(name: str, say: Callable[[str], None]) -> list[str]:
    """The Parquet files of a data set, each with the language that the name ends in; of a path, itself.

    Of a data set or a folder with a split `train` the files of other splits are left out. say: gets what was chosen.
    Raises StorageError.
    """
    if not name.startswith(SCHEME):
        return [name]
    if not (found := _DATASET.fullmatch(name)):
        raise StorageError(f"{name} is no data set of the Hugging Face Hub; write {SCHEME}datasets/OWNER/NAME")
    repo, revision, inner, language = found.groups()
    is_file = inner.endswith(".parquet")
    pattern = inner if is_file else f"{inner.rstrip('/')}/*.parquet".lstrip("/")
    dataset = name.removesuffix(language or "").removesuffix(inner).rstrip("/")
    folder = Path(_download(dataset, "dataset", repo, revision and unquote(revision), [pattern]))
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet"))
    # Other programs may have downloaded other files of this commit.
    names = [one for one in names if fnmatchcase(one, pattern)]
    if not names:
        raise StorageError(
            f"{name} holds no {pattern}, and only Parquet is read; {dataset}@refs/convert/parquet may have it"
        )
    chosen = names if is_file else _choose_split(name, names, say)
    return [f"{folder / one}{language or ''}" for one in chosen]


def _choose_split(name: str, files: list[str], say: Callable[[str], None]) -> list[str]:
    """The files of the split `train`; all if there is none."""
    splits = {file: _SPLIT.findall(file)[-1:] for file in files}
    chosen = [file for file, split in splits.items() if split and split[0].lower().startswith("train")] or files
    folders = list_some(list(dict.fromkeys(f"{os.path.dirname(file) or '.'}/" for file in chosen)), 3)
    others = list_some(sorted({*files} - {*chosen}), 3)
    note = f"; not read, because there is a split train: {others}; name a file or folder to read it" if others else ""
    say(f"{name}: {count_of(len(chosen), 'Parquet file')} in {folders}{note}")
    return chosen


def name_origin(path: str) -> str | None:
    """The name of a file in the cache, with its commit: the same on every machine. None for any other path.

    >>> name_origin(f"/home/me/.cache/huggingface/hub/datasets--a--b/snapshots/{'0' * 40}/data/x.parquet")
    'hf://datasets/a/b@0000000000000000000000000000000000000000/data/x.parquet'
    """
    found = _CACHED.search(Path(path).as_posix())
    return f"{SCHEME}datasets/{found[1].replace('--', '/')}@{found[2]}/{found[3]}" if found else None


def _download(name: str, kind: str, repo: str, revision: str | None, patterns: Sequence[str]) -> str:
    """Download files of a repository, as far as the cache lacks them, and return their folder. name: of the user."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise StorageError(
            f"{name} is no path here; to look it up on the Hugging Face Hub: pip install 'albert-data[hub]'"
        ) from error
    known, used = _commits.get(({}, {}))
    revision = known.get(name) or used.get(name) or revision  # one name is one commit in a build
    try:
        answers = _answers(repo, kind, revision)
        folder = snapshot_download(
            repo, repo_type=kind, revision=revision, allow_patterns=list(patterns), local_files_only=not answers
        )
    except Exception as error:  # also of the library below huggingface_hub, which is another one in other versions
        raise StorageError(_explain(error, name, revision)) from error
    used[name] = Path(folder).name
    return folder


def _answers(repo: str, kind: str, revision: str | None) -> bool:
    """Whether the Hub answers at all, in 10 seconds. snapshot_download would wait without end for one that does not."""
    from huggingface_hub import HfApi, constants, errors

    try:
        HfApi().repo_info(repo, repo_type=kind, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except (errors.HfHubHTTPError, errors.HFValidationError):  # the download fails with the same
        return True
    except (errors.HTTPError, OSError):  # type: ignore[attr-defined]  # all that its HTTP library raises
        return False
    return True


def _explain(error: Exception, name: str, revision: str | None) -> str:
    """Why the Hub did not give what a name means, without what the library says: it may quote addresses."""
    from huggingface_hub import constants, errors

    is_dataset = name.startswith(SCHEME)
    head = name if is_dataset else f"{name} is no path here, and"
    if isinstance(error, errors.GatedRepoError):
        return f"{name} is gated: ask for access on its page of the Hugging Face Hub, and log in with `hf auth login`"
    if isinstance(error, errors.RepositoryNotFoundError):
        advice = "check how it is spelt, or log in with `hf auth login`"
        return f"{head} is not on the Hugging Face Hub, or private; {advice}"
    if isinstance(error, errors.RevisionNotFoundError):
        slash = ", in which a slash is %2F" if is_dataset else ""
        return f"{name}: the Hugging Face Hub has no revision {revision}{slash}"
    if isinstance(error, errors.HFValidationError):
        return f"{head} can be no name on the Hugging Face Hub; check how it is spelt"
    why = "the Hugging Face Hub could not be reached; check the name and the network"
    if constants.HF_HUB_OFFLINE:
        why = "HF_HUB_OFFLINE is set; unset it, or download it before"
    elif isinstance(error, errors.HfHubHTTPError):
        status = error.response.status_code
        advice = "check the token with `hf auth whoami`" if status == 401 else "try again later"
        why = f"the Hugging Face Hub answers {status}; {advice}"
    elif isinstance(error, OSError) and error.strerror:
        why = error.strerror
    is_missing = isinstance(error, errors.LocalEntryNotFoundError)
    return f"{head} {'is not, or not whole, in the cache, and' if is_missing else 'could not be downloaded:'} {why}"
