"""The folder of a run: who it belongs to, and whether a run may start or go on in it. Imports no torch.

```
RUN/ run.json  metrics.jsonl  report.html  tokenizer/spiece.model  checkpoints/step-*/
```
run.json holds the settings, the model's shape and the identity of the run: everything that decides its weights.
Steps are part of it, since the learning rate of each step depends on their number: a finished run can't be lengthened.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from albert_data.errors import CheckpointError, ConfigError, OutputError
from albert_data.files import read_json, write_bytes, write_json
from albert_data.train.config import AlbertConfig, TrainConfig

RUN_FILE = "run.json"
METRICS_FILE = "metrics.jsonl"
TOKENIZER_FILE = Path("tokenizer/spiece.model")  # of a shard folder, and of a run
TOKENIZER_KEY = "tokenizer's sha256"  # of an identity
# These change what is watched, or no more of the weights than rounding does; device and precision count as what they
# came out as.
_FREE_FIELDS = (
    *("log_every", "eval_every", "eval_rows", "save_every", "keep", "tensorboard"),
    *("micro_tokens", "compile", "precision", "device"),
)

Identity = dict[str, Any]


def make_identity(
    config: TrainConfig, model: AlbertConfig, manifest: dict[str, Any], *, device_type: str, precision: str
) -> Identity:
    """All that decides the weights of a run, by the names that a refusal shows."""
    bound = {k: v for k, v in dataclasses.asdict(config).items() if k not in _FREE_FIELDS}
    return {
        **bound,
        "device type": device_type,
        "precision": precision,
        "shards' digest": manifest["digest"],
        TOKENIZER_KEY: manifest["tokenizer"]["sha256"],
        **{f"model's {k}": v for k, v in dataclasses.asdict(model).items()},
    }


def check_identity(here: Identity, there: Identity, origin: Path) -> None:
    """Raise CheckpointError, naming the first field that differs."""
    for name in here:
        if here[name] != there.get(name):
            raise CheckpointError(
                f"can't resume: {name} is {here[name]!r}, but {origin} has {there.get(name)!r}; "
                "give the run its own value again, or start another with a new --output"
            )


def claim_folder(run: Path, config: TrainConfig, shape: AlbertConfig, identity: Identity, *, resume: bool) -> None:
    """Make sure that a run may start (or, with `resume`, go on) in this folder, and write run.json.

    Raises OutputError where something else stands, CheckpointError where there is nothing to resume.
    """
    if resume:
        check_identity(identity, read_run_file(run)["identity"], run / RUN_FILE)
    else:
        _refuse_if_taken(run)
    try:
        run.mkdir(parents=True, exist_ok=True)
        content = {"config": dataclasses.asdict(config), "model": dataclasses.asdict(shape), "identity": identity}
        write_json(run / RUN_FILE, content)
    except OSError as error:
        raise OutputError(f"{run}: can't write there: {error}; choose another --output") from error


def read_run_file(run: Path) -> dict[str, Any]:
    """Return the settings ("config"), the shape of the model ("model") and the identity of the run in this folder.

    Raises CheckpointError where these are missing or of no `TrainConfig` and `AlbertConfig`.
    """
    path = run / RUN_FILE
    try:
        content = read_json(path)
        found = {name: _read_object(content, name) for name in ("config", "model", "identity")}
        for name, kind in (("config", TrainConfig), ("model", AlbertConfig)):
            check_types(kind, found[name])
            kind(**found[name])
        return found
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(
            f"{run}: there is no run to resume ({RUN_FILE} is missing); check --output, or leave out --resume"
        ) from error
    except KeyError as error:
        raise CheckpointError(f"{path}: lacks {error.args[0]}; start another run with a new --output") from error
    except (OSError, ValueError, ConfigError) as error:
        raise CheckpointError(f"{path}: can't be read ({error}); start another run with a new --output") from error


def _read_object(content: dict[str, Any], name: str) -> dict[str, Any]:
    value = content[name]
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is {value!r}; an object is needed")
    return value


def check_types(kind: type, values: dict[str, Any], names: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError, naming it, for a value that is unknown to a class of settings or of another type.

    names: what the settings are called where the values are from, if otherwise.
    """
    hints = get_type_hints(kind)
    for name, value in values.items():
        shown = (names or {}).get(name, name)
        if name not in hints:
            raise ConfigError(f"{shown} is {value!r}, a setting that is not known here")
        hint = hints[name]
        is_allowed = isinstance(value, hint | int if isinstance(0.0, hint) else hint)
        if not is_allowed or (isinstance(value, bool) and hint is not bool):
            wanted = str(getattr(hint, "__name__", hint)).replace("None", "null").replace("|", "or")
            raise ConfigError(f"{shown} is {value!r}, of a wrong type; {wanted} is needed")


def keep_tokenizer(run: Path, shards: Path) -> None:
    """Copy the tokenizer's model from the shard folder, so that the run can be used without it."""
    source = shards / TOKENIZER_FILE
    if source.is_file():
        (run / TOKENIZER_FILE).parent.mkdir(exist_ok=True)
        write_bytes(run / TOKENIZER_FILE, source.read_bytes())


def load_config(run: Path) -> TrainConfig:
    """Return the settings that the run in this folder was last started with."""
    return TrainConfig(**read_run_file(run)["config"])


def _refuse_if_taken(run: Path) -> None:
    if run.exists() and not run.is_dir():
        raise OutputError(f"{run}: is a file; --output has to name a folder")
    if (run / RUN_FILE).exists():
        raise OutputError(f"{run}: holds a run already; continue it with --resume, or choose another --output")
    for name in (METRICS_FILE, "checkpoints", "manifest.json"):
        if (run / name).exists():
            raise OutputError(f"{run}: holds {name}, which is not of this run; choose another --output")
