"""The folder of a training run: checks whether a run may start or resume in it. Imports no torch.

```
RUN/ run.json  metrics.jsonl  report.html  trace.json.gz  tokenizer/spiece.model or
     tokenizer/tokenizer.json  checkpoints/step-*/  .lock
```
run.json holds the settings, the model's shape, and the run's identity (everything that decides its weights).
The number of steps is part of the identity, because the learning rate of each step depends on it. So a finished run
can't be made longer.
If RUN has a run.json, these files belong to the run. If it has none, a metrics.jsonl, report.html, trace.json.gz,
checkpoints/ or another tokenizer there belongs to the user, and the run does not start. All other files stay. None of
these files and folders may be a link, nor what lies in the folders: RUN itself may be one.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert_data.errors import CheckpointError, ConfigError, OutputError
from albert_data.jobs.work_folder import take_lock
from albert_data.storage import FILE, find_kind, find_storage
from albert_data.storage.files import hash_file, read_bytes, write_bytes, write_json
from albert_data.text.escaping import quote
from albert_data.train.config import AlbertConfig, TrainConfig
from albert_data.train.reading import advise, explain, explain_writing, read_object, show

if TYPE_CHECKING:  # it imports Arrow, which no --help needs
    from albert_data.shards.manifest import Manifest

RUN_FILE = "run.json"
METRICS_FILE = "metrics.jsonl"
PAGE_FILE = "report.html"
TRACE_FILE = "trace.json.gz"
CHECKPOINTS_FOLDER = "checkpoints"
LOCK_FILE = ".lock"
# One of them, in a shard folder and in a run.
_TOKENIZER_FILES = (Path("tokenizer/spiece.model"), Path("tokenizer/tokenizer.json"))
DIGEST_KEY, TOKENIZER_KEY = "shards' digest", "tokenizer's sha256"  # of an identity
TEXT_KEY = "text"  # of run.json: what the manifest says of the text
INIT_KEY = "init_from"  # of run.json, only if the first weights were not drawn: where they are from
ATTENTION_KEY = "attention"  # of an identity; it has none with PyTorch's own kernel
NORMALIZATION_KEY = "tokenizer's normalization"  # of an identity; it has none where there is no normalization
# What `check_folder` checks in every run, and whether each is a folder.
_KINDS = {
    **dict.fromkeys((RUN_FILE, METRICS_FILE, PAGE_FILE, TRACE_FILE, LOCK_FILE), False),
    **dict.fromkeys(("tokenizer", CHECKPOINTS_FOLDER), True),
}
# These are not part of the identity.
_FREE_FIELDS = (
    # They change only what is recorded; with --minutes also the time that is left, which the learning rate follows.
    *("log_every", "eval_every", "eval_rows", "save_every", "keep", "guesses", "profile"),
    # They change the weights by rounding only. With dropout, micro_tokens also decides which units are dropped, as the
    # number of ranks does: a run may resume with other numbers, but is not the run that it would have been.
    *("micro_tokens", "recompute", "compile", "graphs"),
    # Instead of these, the identity has the values that were chosen for "auto".
    *("precision", "device"),
)

Identity = dict[str, Any]


def make_identity(
    config: TrainConfig, model: AlbertConfig, manifest: Manifest, *, device_type: str, precision: str, attention: str
) -> Identity:
    """Return everything that decides the weights of a run, by the names that error messages show.

    attention: the kernel for packed rows; empty for PyTorch's own.
    """
    normalization = manifest.tokenizer.normalization
    return {
        **{name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE_FIELDS},
        "device type": device_type,
        "precision": precision,
        DIGEST_KEY: manifest.digest,
        TOKENIZER_KEY: manifest.tokenizer.sha256,
        **({NORMALIZATION_KEY: normalization} if normalization else {}),
        **({ATTENTION_KEY: attention} if attention else {}),
        **{f"model's {name}": value for name, value in dataclasses.asdict(model).items()},
    }


def check_identity(here: Identity, there: Identity, origin: Path) -> None:
    """Raise CheckpointError for the first field that differs. origin: run.json, or a checkpoint of the run."""
    run = quote(origin.parent if origin.name == RUN_FILE else origin.parent.parent)
    for name in here:
        if name not in there:
            raise CheckpointError(
                f"can't resume: {origin} lacks {name}, as another version of albert-data began the run; resume with "
                f"that one, or train its weights further with --init-from {run} and a new --output"
            )
        if here[name] != there[name]:
            raise CheckpointError(
                f"can't resume: {name} is {here[name]!r}, but {origin} has {show(there[name])}; give the run's own "
                f"value, or start another run with a new --output: --init-from {run} trains its weights further"
            )


@contextmanager
def lock_folder(run: Path) -> Iterator[None]:
    """Lock RUN against other trainings until the block, or the process, ends. Makes RUN if it is new.

    Raises OutputError if another training holds the lock.
    """
    with ExitStack() as stack:
        with explain_writing(f"{run}: can't write there", "choose another --output"):
            run.mkdir(parents=True, exist_ok=True)
            taken = f"{run}: another training writes there now; wait for its end, or choose another --output"
            stack.callback(take_lock(run / LOCK_FILE, b"", taken))
            find_storage(run).remove_leftovers(run)  # of a run that was killed while it wrote
        yield


def claim_folder(
    run: Path,
    shards: Path,
    config: TrainConfig,
    shape: AlbertConfig,
    identity: Identity,
    *,
    resume: bool,
    text: Mapping[str, Any],
    init_from: Path | None = None,
) -> None:
    """Write run.json and the tokenizer's model, so that the run can be used without its shards. RUN is locked.

    text: what the manifest says of it, for the card of an exported model.
    init_from: the weights that a new run begins with; None for drawn ones.
    A resumed run keeps what else its run.json holds: users and other programs may have added it.
    Raises the errors of `check_folder`: another training may have come since they were looked for.
    """
    check_folder(run, resume=resume)
    content = read_object(run / RUN_FILE) if resume else {}
    source = find_tokenizer(shards, identity[TOKENIZER_KEY])
    target, is_there = run / source.relative_to(shards), find_kind(source) == FILE
    is_in_way = not resume and is_there and os.path.lexists(target)
    if is_in_way and (not target.is_file() or target.read_bytes() != read_bytes(source)):
        raise OutputError(f"{run} holds {target.relative_to(run)}, which is not of this run; choose another --output")
    begin = {TEXT_KEY: text, **({} if init_from is None else {INIT_KEY: str(init_from)})}
    ours = {"config": dataclasses.asdict(config), "model": dataclasses.asdict(shape), "identity": identity, **begin}
    with explain_writing(f"{run}: can't write there", "choose another --output"):
        if content != content | ours:
            write_json(run / RUN_FILE, content | ours)
        if is_there and not os.path.lexists(target):
            target.parent.mkdir(exist_ok=True)
            write_bytes(target, read_bytes(source))


def read_run_file(run: Path) -> dict[str, Any]:
    """Return the settings ("config"), the shape of the model ("model"), the "identity" and TEXT_KEY of a run.

    Raises CheckpointError if one is missing, or is not a valid `TrainConfig` or `AlbertConfig`.
    """
    path, advice = run / RUN_FILE, "put the run's own file back, or train again with a new --output"
    try:
        content = {TEXT_KEY: {}, **read_object(path)}
        found = {name: content[name] for name in ("config", "model", "identity", TEXT_KEY)}
        if wrong := [name for name, value in found.items() if not isinstance(value, dict)]:
            raise ConfigError(f"{wrong[0]} is {show(found[wrong[0]])}; an object is needed")
        check_known(TrainConfig, found["config"])
        TrainConfig(**found["config"])
        check_shape(found["model"])
        return found
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(
            f"{run}: there is no run to resume ({RUN_FILE} is missing); check --output, or leave out --resume"
        ) from error
    except KeyError as error:
        raise CheckpointError(f"{path} lacks {error.args[0]}; {advice}") from error
    except (OSError, ValueError, ConfigError) as error:
        raise CheckpointError(f"{path} can't be read ({explain(error)}); {advise(error, advice)}") from error


def check_shape(values: Any) -> None:
    """Raise ConfigError unless all fields of an `AlbertConfig` are there: a default could be another model's value."""
    if not isinstance(values, dict):
        raise ConfigError(f"the model's shape is {show(values)}; an object is needed")
    check_known(AlbertConfig, values)
    if lacking := [field.name for field in dataclasses.fields(AlbertConfig) if field.name not in values]:
        raise ConfigError(f"the model's shape lacks {lacking[0]}")
    AlbertConfig(**values)


def check_known(kind: type, values: dict[str, Any]) -> None:
    """Raise ConfigError for a name that a class of settings does not have."""
    known = {field.name for field in dataclasses.fields(kind)}
    if unknown := [name for name in values if name not in known]:
        raise ConfigError(f"{unknown[0]} is {show(values[unknown[0]])}, a setting that this version does not know")


def find_tokenizer(folder: Path, sha256: str) -> Path:
    """The path of the tokenizer in a shard folder or a run. sha256: of the right one, should there be two."""
    found = [folder / name for name in _TOKENIZER_FILES if find_kind(folder / name) == FILE]
    right = [path for path in found if len(found) > 1 and hash_file(path) == sha256]
    return (right or found or [folder / _TOKENIZER_FILES[0]])[0]


def load_config(run: Path) -> TrainConfig:
    """Return the settings that the run in this folder was last started with."""
    return TrainConfig(**read_run_file(run)["config"])


def check_folder(run: Path, *, resume: bool) -> None:
    """Check that a run may start, or with `resume` continue, in this folder. Changes nothing.

    Raises OutputError if files that are not of a run are in the way, CheckpointError if there is no run to resume.
    """
    if resume:
        read_run_file(run)
    elif run.exists() and not run.is_dir():
        raise OutputError(f"{run} is a file; --output has to name a folder")
    elif os.path.lexists(run / RUN_FILE):
        raise OutputError(f"{run} holds a run already; continue it with --resume, or choose another --output")
    else:
        for name in (METRICS_FILE, PAGE_FILE, TRACE_FILE, CHECKPOINTS_FOLDER, "manifest.json"):  # the last: of shards
            if os.path.lexists(run / name):
                raise OutputError(f"{run} holds {name}, which is not of this run; choose another --output")
    for name, is_folder in _KINDS.items():
        _check_kind(run / name, is_folder=is_folder)


def _check_kind(path: Path, *, is_folder: bool) -> None:
    """Raise OutputError for another kind of file, and for a link, also inside a folder: a run would write through."""
    if os.path.lexists(path) and not (path.is_dir() if is_folder else path.is_file()):
        wanted = "folder" if is_folder else "regular file"
        raise OutputError(
            f"{path} is not a {wanted}, which a run needs there; move it away, or choose another --output"
        )
    inner = (Path(root, name) for root, folders, files in os.walk(path) for name in (*folders, *files))
    if link := next((one for one in (path, *inner) if one.is_symlink()), None):
        raise OutputError(
            f"{link} is a link, and a run would write there; put there what it leads to, or choose another --output"
        )


def list_files(run: Path) -> Iterator[Path]:
    """Yield the files and folders of a run that its readers use. Some may be missing."""
    yield from (run / name for name in _KINDS)
    yield from (run / CHECKPOINTS_FOLDER).glob("step-*")  # which may be links
