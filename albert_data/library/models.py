"""From shards to a model: `train_model`, `export_model` and `score_model`. torch is imported when they are called."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from albert_data.config import take_settings
from albert_data.errors import AlbertDataError, ArgumentError
from albert_data.interop.sentence_pairs import ScoreConfig, ScoredPairs, read_pairs
from albert_data.jobs.progress import Progress, log
from albert_data.library.arguments import PathName, disk_path, public, require_packages
from albert_data.library.progress import show_progress
from albert_data.library.settings import Preset, Recipe, ScoreSettings, TrainSettings
from albert_data.report.page import embed_page
from albert_data.runs.figures import RunFigures, read_run
from albert_data.runs.page import make_run_page
from albert_data.storage import is_remote, make_path
from albert_data.storage.files import check_output, write_output
from albert_data.storage.hub import MODEL_FILES, find_model
from albert_data.text.output import tell
from albert_data.train.config import BUDGETS, DEFAULT_RECIPE, AlbertConfig, TrainConfig, change_settings, resolve
from albert_data.train.folder import load_config, read_run_file
from albert_data.train.interrupt import Interrupt


@dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """What `train_model` made: the folder of the run, and its last checkpoint, None if it was interrupted."""

    folder: Path
    checkpoint: Path | None

    @cached_property
    def figures(self) -> RunFigures:
        """The settings of the run, and the figures of each line of its metrics."""
        return read_run(self.folder)

    def __repr__(self) -> str:
        try:
            last = self.figures.last_validation
        except AlbertDataError as error:  # for example if the folder is gone
            return f"TrainedRun({str(self.folder)!r}: {error})"
        found = [f"{name} {last[name]:.4g}" for name in ("mlm_loss", "mlm_accuracy", "sop_accuracy") if last.get(name)]
        state = "" if self.checkpoint else ", interrupted"
        return f"TrainedRun({str(self.folder)!r}, {', '.join([f'step {self.figures.last_step:,}', *found])}{state})"

    def _repr_html_(self) -> str | None:
        with suppress(AlbertDataError):
            return embed_page(make_run_page(self.figures))
        return None


@public()
def train_model(
    shards: PathName,
    output: PathName | None = None,
    *,
    config: TrainConfig | None = None,
    preset: Preset | None = None,
    recipe: Recipe | None = None,
    resume: bool = False,
    init_from: PathName | None = None,
    progress: bool = False,
    interrupt: Interrupt | None = None,
    **settings: Unpack[TrainSettings],
) -> TrainedRun:
    """Pretrain an ALBERT on shards, as `albert-data train` does. Needs PyTorch.

    output: the folder of the run; None for SHARDS-run beside the shards. resume: from its newest checkpoint, with its
    settings. preset: the size of the model; None for mini on a CPU, base on a GPU or with `init_from`.
    recipe: the settings to start from. config: all of them, instead. settings: those of TrainConfig, which change them.
    init_from: a run, a checkpoint or a Hugging Face folder, whose weights the training begins with.
    progress: print lines and a bar on stderr.
    interrupt: keeps the signal that ended the run. Without one, Ctrl-C raises KeyboardInterrupt after a checkpoint is
    saved, and another signal does what it does elsewhere.
    Raises ConfigError, ShardError, CheckpointError and OutputError.
    """
    given: dict[str, Any] = {**settings, **({} if preset is None else {"preset": preset})}
    _refuse_pairs(given, resume=resume, recipe=recipe, init_from=init_from, config=config)
    folder, run = make_path(shards), name_run(shards) if output is None else disk_path(output, "output")
    require_packages("train", "torch", extra="train")
    from albert_data.interop.initial import load_initial
    from albert_data.train import loop
    from albert_data.train.device import choose_device, read_ranks

    def say(line: str) -> None:
        if read_ranks().is_first:
            (tell if progress else log)(line)

    if resume:
        config = change_settings(load_config(run), {"profile": False, **given})
    elif config is not None:
        config = change_settings(config, given)
    else:
        device = choose_device(given.get("device", TrainConfig.device), read_ranks())[0].type
        config = resolve(recipe, preset, device, given, has_weights=init_from is not None)
        of_gpu = resolve(recipe or DEFAULT_RECIPE, preset, "cuda", given)
        if init_from is not None and device == "cpu" and config.batch_tokens != of_gpu.batch_tokens:
            say(f"batch       {config.batch_tokens:,} tokens and --lr {config.lr:g}, for a CPU")
    weights = None if init_from is None else disk_path(find_model(init_from, MODEL_FILES), "init_from")
    initial = None if weights is None else load_initial(weights, folder, seed=config.seed, say=say)
    watch = interrupt or Interrupt()
    last = loop.train(folder, run, config, resume=resume, initial=initial, interrupt=watch, is_shown=progress)
    if interrupt is None and watch.number:
        signal.raise_signal(watch.number)
    return TrainedRun(folder=run, checkpoint=last)


def name_run(shards: PathName) -> Path:
    """SHARDS-run beside the shards. A link has its run beside the link."""
    if is_remote(shards):
        raise ArgumentError(f"{shards} is in a store, and a run has to be on a disk; name a folder with --output")
    folder = make_path(shards)
    named = folder if folder.name not in ("", "..") else Path(os.path.realpath(folder))
    if not named.name:
        raise ArgumentError(f"there is no folder beside {shards}; name one with --output")
    return named.with_name(f"{named.name}-run")


def _refuse_pairs(settings: dict[str, Any], **others: Any) -> None:
    """Raise ArgumentError for two arguments of which one would be of no effect."""
    budgets = [f"--{name}" for name in BUDGETS if settings.get(name) is not None]
    if len(budgets) > 1:
        raise ArgumentError(f"{' and '.join(budgets)} exclude one another")
    if others["resume"] and (others["init_from"] or others["recipe"]):
        raise ArgumentError(f"--resume excludes {'--init-from' if others['init_from'] else '--recipe'}")
    if others["config"] and (others["resume"] or others["recipe"]):
        what = "resume continues with the settings of the run" if others["resume"] else "a recipe has all settings too"
        raise ArgumentError(f"{what}; leave config out")


@dataclass(frozen=True, kw_only=True)
class ExportedModel:
    """What `export_model` wrote.

    checkpoint: whose weights; architecture: the class of transformers that holds them; lacks_order: whether the head of
    the sentence task is left out, as that class has none for it.
    """

    folder: Path
    checkpoint: Path
    architecture: str
    lacks_order: bool


@public()
def export_model(run: PathName, output: PathName, *, checkpoint: PathName | None = None) -> ExportedModel:
    """Write a model as a folder that transformers loads, as `albert-data export` does. Needs PyTorch and safetensors.

    run: of `train_model`. checkpoint: None for the newest.
    Raises CheckpointError, ConfigError, TokenizerError and OutputError.
    """
    folder, out = disk_path(run, "run"), disk_path(output, "output")
    chosen = None if checkpoint is None else disk_path(checkpoint, "checkpoint")
    require_packages("export", "torch", "safetensors", extra="train")
    from albert_data.interop.huggingface import FOR_MASKED_LM, choose_class, export_run

    path = export_run(folder, out, checkpoint=chosen)
    config = AlbertConfig(**read_run_file(folder)["model"])
    lacks_order = choose_class(config) == FOR_MASKED_LM and bool(config.task.orders)
    return ExportedModel(folder=out, checkpoint=path, architecture=choose_class(config), lacks_order=lacks_order)


@public(ScoreConfig)
def score_model(
    model: PathName,
    pairs: PathName,
    *,
    output: PathName | None = None,
    checkpoint: PathName | None = None,
    config: ScoreConfig | None = None,
    progress: Progress | bool = False,
    **settings: Unpack[ScoreSettings],
) -> ScoredPairs:
    """Measure how often a model finds the good sentence of a pair likelier, as `albert-data score` does.

    model: a run, or the Hugging Face folder of an ALBERT. pairs: a file of JSON lines with good and bad; "-" is stdin.
    output: where each pair is written with its two scores. checkpoint: see `export_model`.
    settings: those of ScoreConfig. They change `config`. Needs PyTorch and safetensors.
    Raises CheckpointError, ConfigError, InputError, TokenizerError and OutputError.
    """
    config = take_settings(ScoreConfig, {**settings}, config)
    folder, chosen = disk_path(model, "model"), None if checkpoint is None else disk_path(checkpoint, "checkpoint")
    out, name = None if output is None else disk_path(output, "output"), os.fspath(pairs)
    require_packages("score", "torch", "safetensors", extra="train")
    from albert_data.interop.scoring import list_read, load_masked_lm, score_pairs

    if out is not None:
        check_output(out, [name, *list_read(folder, checkpoint=chosen)])
    found = read_pairs(name)
    loaded, origin = load_masked_lm(folder, checkpoint=chosen)
    with show_progress(progress) as shown:
        scored = dataclasses.replace(score_pairs(loaded, found, config, shown), model=origin)
    if out is not None:
        lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in scored.to_records())
        write_output(out, "".join(lines).encode())
    return scored
