"""Pretrains a model on shards and writes a run folder: metrics, checkpoints and a page of curves.

Each update is a function of the state before it, its number and its batch. So a run that was stopped resumes from its
newest checkpoint with the losses that it would have had: on a CPU with as many threads bit for bit, on a GPU as far as
its kernels are deterministic. With --minutes only the rows are the same, as the learning rate follows the clock.

`train` opens everything; `_Loop.run` prepares the first step; `_Loop.make_steps` is the loop of steps.
All ranks run the same code. Where the clock, a signal or a file decides, they first agree (distributed.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from albert_data.errors import AlbertDataError, ConfigError
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.progress import NullProgress
from albert_data.runs.figures import read_run
from albert_data.runs.page import is_page_current, write_run_page
from albert_data.shards.card import describe_text
from albert_data.text.escaping import quote
from albert_data.text.output import tell
from albert_data.train.config import TrainConfig
from albert_data.train.data.batch import Batch
from albert_data.train.data.loader import ShardLoader, Splits, open_training
from albert_data.train.data.order import padded_len, rows_per_batch
from albert_data.train.distributed import join_ranks, read_ranks
from albert_data.train.folder import METRICS_FILE, TRACE_FILE, check_folder, claim_folder, lock_folder
from albert_data.train.model.checkpoint import list_checkpoints, prune_checkpoints
from albert_data.train.model.flops import batch_flops, peak_flops
from albert_data.train.model.precision import check_gpus, choose_device, choose_precision
from albert_data.train.run.budget import (
    FIELDS,
    UPDATE_COST,
    Budget,
    Intervals,
    choose_intervals,
    count_steps,
    explain_shortness,
)
from albert_data.train.run.compiling import COMPILING, warm_up
from albert_data.train.run.evaluation import evaluate, measure_baseline
from albert_data.train.run.guesses import make_guesser, to_lines
from albert_data.train.run.interrupt import Interrupt
from albert_data.train.run.memory import fit_batches, halve_batches, peak_gb
from albert_data.train.run.metrics import Figures, MetricsFile
from albert_data.train.run.report import (
    Report,
    TensorBoardWriter,
    describe,
    describe_end,
    describe_start,
    profile_steps,
    require_tensorboard,
)
from albert_data.train.run.session import (
    check_agreement,
    explain_stop,
    identify_run,
    make_loader,
    restore_newest,
    save_session,
    start_session,
    update,
)
from albert_data.train.run.state import Initial, Session


def train(
    shards: Path,
    run: Path,
    config: TrainConfig,
    *,
    resume: bool = False,
    initial: Initial | None = None,
    interrupt: Interrupt | None = None,
    is_shown: bool = True,
) -> Path | None:
    """Train on a shard folder and return the last checkpoint in `run`, or None if the run was interrupted.

    resume: continue from the newest checkpoint in `run`; settings and shards have to be the same. If the run is
    finished, write its last validation and its page if they are missing.
    initial: weights to begin with. interrupt: tells the caller which signal came. Ctrl-C, SIGTERM and SIGHUP save a
    checkpoint, a second Ctrl-C does not. is_shown: print lines and a bar on stderr. Seeds PyTorch's global generators.
    Under torchrun all processes train together, and the first one writes.
    Raises ConfigError, ShardError, CheckpointError, OutputError; AlbertDataError if gradients stay not finite.
    """
    began = time.perf_counter()
    interrupt = interrupt or Interrupt()
    splits = open_training(shards)
    with ExitStack() as stack:
        ranks = stack.enter_context(join_ranks(choose_device(config.device, read_ranks())[0].type))
        precision = choose_precision(config.precision, config.device, ranks)
        check_gpus(precision.device, ranks)
        if ranks.is_first or resume:  # a new run is made by the first rank, perhaps before another rank comes here
            check_folder(run, resume=resume)
        if config.threads is not None:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(config.threads)
        shape, identity = identify_run(splits.train.manifest, run if resume else None, config, precision, initial)
        loader, obstacle = make_loader(splits.train, config, shape, precision, ranks)
        num_steps = count_steps(config, loader.steps_per_epoch)
        config = choose_intervals(config, num_steps, splits.train.manifest.config.examples.max_seq_len)
        start = partial(start_session, config, shape, precision, ranks, identity, initial)
        session = compile_with_notice(start, tell if ranks.is_first and is_shown else NullProgress().say, COMPILING)
        # Before the ranks disconnect: if DDP is the last owner of their group, PyTorch's destructor can wait forever.
        stack.callback(setattr, session, "network", session.model)
        if config.tensorboard:
            require_tensorboard()
        stack.enter_context(interrupt)
        if ranks.is_first:
            stack.enter_context(lock_folder(run, resume=resume))
            origin, manifest = None if initial is None else initial.origin, splits.train.manifest
            text = describe_text(manifest, sources=[source.name for source in manifest.plan.mixture or ()])
            claim_folder(run, shards, config, shape, identity, resume=resume, text=text, init_from=origin)
        ranks.wait()
        spent = restore_newest(session, loader, run, initial) if resume else {}
        check_agreement(session, run)
        if loader.is_packed and obstacle is not None:  # a run that resumes keeps what it began with
            raise ConfigError(f"can't resume here: the run's rows are packed, and {obstacle}; resume where the run was")
        budget = Budget(config, loader.steps_per_epoch, began=began, **spent)
        report = stack.enter_context(
            closing(Report(budget, precision.device, shape.task, is_first=ranks.is_first and is_shown))
        )
        report.say(f"run         {run}", *describe_start(session, loader, obstacle, splits, budget))
        loop = _Loop(session, loader, splits, run, budget, report, interrupt)
        if config.tensorboard and ranks.is_first:
            loop.events = stack.enter_context(closing(TensorBoardWriter(run, step=session.step)))
        return loop.run(save_first=initial is not None)


@dataclass
class _Loop:
    """The updates of one process, and the metrics lines, evaluations and checkpoints between them.

    folder: the run's.
    events: TensorBoard's, on the first rank if the settings ask for them.
    share: of the run that is done, by the first rank's clock.
    rate: the learning rate of the last update.
    rows: the numbers of the rows of the last update, on this rank.
    """

    session: Session
    loader: ShardLoader
    splits: Splits
    folder: Path
    budget: Budget
    report: Report
    interrupt: Interrupt
    events: TensorBoardWriter | None = None
    share: float = 0.0
    rate: float = 0.0
    rows: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        session, say = self.session, self.report.say
        self._config, self._ranks = session.config, session.ranks
        self._row_len = self.splits.train.manifest.config.examples.max_seq_len
        # None on a CPU: its device_info is no name of a GPU.
        self._peak = peak_flops(session.precision.device_info, session.precision.format)
        self._reported: set[Path] = set()
        asks = self._config.guesses and self._ranks.is_first
        self._guesser = make_guesser(self.splits.validation, say) if asks else None
        self._is_guessed = False
        if self._ranks.is_first:
            self._metrics = MetricsFile(self.folder / METRICS_FILE, keep_until_step=session.step, say=say)

    def run(self, *, save_first: bool) -> Path | None:
        """Train to the end or to a signal. save_first: write a checkpoint of step 0 too."""
        session, config, budget = self.session, self._config, self.budget
        if save_first:  # the weights were loaded, so --resume can't draw them again from the seed
            self._save()
        if session.step:
            is_over = self._measure_share() >= 1
            self.report.say(f"resuming at step {session.step:,}")
            if is_over:
                return self._complete()
        for line in fit_batches(session, self.loader):
            self.report.say(line)
        if budget.is_timed and session.is_compiled:
            warm_up(
                session,
                self.loader,
                self.splits.validation,
                must_stop=lambda: self.interrupt.stop_requested or budget.share_done(session.step) >= 1,
                say=self.report.say,
            )
        is_evaluated = config.eval_every and session.step and session.step % config.eval_every == 0
        if is_evaluated and self._lacks_validation(is_final=False):
            self._evaluate(is_last=False)  # the run was stopped during this evaluation
        if budget.is_timed and session.step == 0:
            if self._measure_share() < 1:
                self._evaluate(is_last=False)  # to know how long the last one will take
            if self._measure_share() >= 1:
                raise ConfigError(
                    f"minutes is {config.minutes:g}; the start took {budget.seconds:.0f} seconds, and the end "
                    f"will take {budget.end_seconds:.0f}: no time is left for training; start another "
                    "run with more --minutes, or --resume with fewer --eval-rows"
                )
        if session.step == 0 and not save_first and (reason := self._explain_shortness()):
            self.report.say(*reason.split("\n"))
        return self._stop() if self._agree_on_stop() else self.make_steps()

    def make_steps(self) -> Path | None:
        """The loop of steps: an update, then what is due: a line of metrics, an evaluation, a checkpoint."""
        session, budget = self.session, self.budget
        budget.begin(session.step)
        self.share = self._measure_share()
        self._intervals = Intervals(self._config, session.step, self.share)
        lap = budget.seconds
        for batches in self._read_steps():
            try:
                is_last, must_stop = self._update(batches)
            except torch.cuda.OutOfMemoryError as error:
                num_rows, row_len = batches[0].input_ids_BT.shape
                self.report.say(halve_batches(session, self.loader, (num_rows, row_len), error))
                continue  # with the same step
            # Reading the sums waits for the GPU, so the lap includes all of its work.
            values = self._read_tally() if self._take_due("log", is_forced=is_last) else None
            session.tally.seconds += budget.seconds - lap
            if values is not None:
                self._log(values)
            is_evaluated = not self._take_due("evaluation", is_forced=is_last) or self._evaluate(is_last=is_last)
            must_stop = must_stop or not is_evaluated
            if self._take_due("checkpoint", is_forced=is_last or must_stop):
                must_stop = self._save() or must_stop
            if is_last and is_evaluated:
                return self._finish()
            if must_stop:
                break
            lap = budget.seconds
        return self._stop()

    def _read_steps(self) -> Iterator[list[Batch]]:
        """Yield the batches of each step; those of a step that was not made once more, in smaller batches."""
        steps = self._open_stream()
        while True:
            before, step = self.loader.state_dict(), self.session.step
            yield next(steps)
            if self.session.step == step:  # memory ran out
                self.loader.load_state_dict(before)  # the stream may have read ahead
                steps = self._open_stream()

    def _open_stream(self) -> Iterator[list[Batch]]:
        first, is_set = self.session.step, self._config.mask_prob is not None
        prob = (lambda number: self.budget.mask_prob(first + number)) if is_set else None
        steps = self.loader.stream(self.session.precision.device, mask_prob=prob)
        if self._config.profile and self._ranks.is_first:
            return profile_steps(steps, self.folder / TRACE_FILE, self.report)
        return steps

    def _update(self, batches: list[Batch]) -> tuple[bool, bool]:
        """Make a step. Returns whether it is the last of the run, and whether a signal asks to stop."""
        session, budget, ranks = self.session, self.budget, self._ranks
        num_masked, num_pairs, share, per_step, *signals = ranks.sum(
            [
                sum(batch.num_masked for batch in batches),
                sum(batch.num_pairs for batch in batches),
                budget.share_done(session.step) if ranks.is_first else 0.0,
                budget.share_per_step(session.step) if ranks.is_first else 0.0,
                *self.interrupt.flags(),
            ]
        )
        self.share = share + per_step
        self.rate = budget.rate(session.step, share, per_step)
        is_last = budget.is_last(session.step, share, per_step)
        self.rows = [batch.rows for batch in batches]
        window = budget.window(share, self._row_len)
        update(session, batches, lr=self.rate, num_masked=num_masked, num_pairs=num_pairs, window=window)
        for batch in batches:
            session.tally.num_flops += batch_flops(session.model.config, batch)
        self.report.advance(share, session.step, ranks.num_ranks * sum(batch.num_tokens for batch in batches))
        return is_last, self.interrupt.agree(signals)

    # ---- what the ranks agree on ----

    def _agree_on_stop(self) -> bool:
        """Whether any rank received a signal. All ranks then know which."""
        return self.interrupt.agree(self._ranks.sum(self.interrupt.flags()))

    def _measure_share(self) -> float:
        """The share of the run that is done."""
        return self._ranks.follow_first(lambda: self.budget.share_done(self.session.step))

    def _lacks_validation(self, *, is_final: bool) -> bool:
        """Whether the metrics file lacks a validation of this step, or the one at the end of the run."""
        if self.splits.validation is None:
            return False
        step = self.session.step
        return bool(self._ranks.follow_first(lambda: not self._metrics.has_validation(step, is_final=is_final)))

    def _take_due(self, work: str, *, is_forced: bool) -> bool:
        """Whether a "log", an "evaluation" or a "checkpoint" comes now; if so, its interval begins anew.

        The last two have to end before the last ones of the run begin; and to be a small share of the time, if their
        interval was not given.
        """
        budget, now = self.budget, (self.session.step, self.share)
        if not is_forced:
            if not self._intervals.is_due(work, *now):
                return False
            is_free = work == "log" or getattr(self._config, FIELDS[work]) is not None
            if work != "log" and not self._ranks.follow_first(
                lambda: (is_free or budget.is_rested(work)) and budget.has_time(work)
            ):
                return False
        self._intervals.note(work, *now)
        return True

    # ---- what comes between the updates ----

    def _read_tally(self) -> Figures:
        """Return the figures since the last line. Raises AlbertDataError if the run can't go on."""
        if (reason := explain_stop(self.session, self.rows, self.splits.folder)) is not None:
            raise AlbertDataError(f"{self.folder}: {reason}")
        return self.session.tally.read(self._ranks)

    def _log(self, values: Figures) -> None:
        session, tally = self.session, self.session.tally
        num_tokens, num_cells = self._ranks.sum([tally.num_tokens, tally.num_cells])
        line: dict[str, Any] = {
            **values,
            "lr": self.rate,
            "epoch": round(self.loader.epochs_read, 4),
            "padding_share": 1 - num_tokens / num_cells,
            "tokens_per_second": round(num_tokens / tally.seconds, 1),
            "seconds": round(self.budget.seconds, 3),
            **peak_gb(session.precision.device),
        }
        if self._peak is not None:  # the peak of one GPU, so the FLOPs of one rank
            line["mfu"] = round(tally.num_flops / tally.seconds / self._peak, 4)
        if (num_skipped := tally.num_skipped()) or session.precision.is_scaled:
            line["skipped_steps"] = num_skipped
        self._write("train", line)
        self.report.show(session.step, line)
        tally.begin_line()

    def _write(self, split: str, line: dict[str, Any]) -> None:
        if self._ranks.is_first:
            self._metrics.write(step=self.session.step, split=split, **line)
        if self.events is not None:
            self.events.write(split, self.session.step, line)

    def _evaluate(self, *, is_last: bool) -> bool:
        """Write the figures of the validation rows. Returns False if a signal interrupted the evaluation."""
        session, validation, num_rows = self.session, self.splits.validation, self._config.eval_rows
        if validation is None:
            return True
        assert num_rows is not None, "choose_intervals fills it in"
        self._read_tally()  # raises if the weights may not be finite
        began = self.budget.seconds
        nats_R = np.zeros(min(num_rows, len(validation))) if is_last else None
        pack = self.loader.find_pack(validation)
        try:
            values: dict[str, Any] = evaluate(
                session.model,
                validation,
                session.precision,
                num_rows=num_rows,
                batch_tokens=self.loader.tokens_at_once,
                pack=pack,
                ranks=self._ranks,
                must_stop=lambda: self.interrupt.stop_requested,
                nats_R=nats_R,
            )
        except torch.cuda.OutOfMemoryError as error:
            row_len = padded_len(int(validation.lengths.max())) if pack is None else pack.pack_len
            shape = rows_per_batch(row_len, self.loader.tokens_at_once), row_len
            self.report.say(halve_batches(session, self.loader, shape, error))
            return self._evaluate(is_last=is_last)
        if self._agree_on_stop():
            return False
        if not all(value is None or math.isfinite(value) for value in values.values()):
            raise AlbertDataError(f"{self.folder}: validation at step {session.step} is not finite ({values})")
        answers = self._guesser.ask(session.model) if self._guesser is not None else []
        self.budget.note("evaluation", self.budget.seconds - began)
        if not self._ranks.is_first:
            return True
        if answers:
            values["guesses"] = "\n".join(map("\t".join, answers))  # control characters in them are escaped
        if nats_R is not None and (baseline := measure_baseline(self.splits.train, validation, num_rows=num_rows)):
            values |= baseline.compare(values["mlm_loss"], nats_R)
        self._write("validation", values)
        text = f"step {session.step:,}: validation {describe(values, session.model.config.task)}"
        self.report.say(*(describe_end(read_run(self.folder)) if is_last else [text]))
        if is_last or not self._is_guessed:  # the page has them too; ten evaluations of a minute would fill the screen
            for line in to_lines(answers):
                self.report.say(line)
            self._is_guessed = True
        return True

    def _save(self) -> bool:
        """Write a checkpoint. Returns whether any rank received a signal before it was complete."""
        self._read_tally()  # raises if the weights may not be finite: no checkpoint has such weights
        began = self.budget.seconds
        self.session.tally.gather(self._ranks)
        if self._ranks.is_first:
            save_session(self.session, self.budget, self.folder, self.loader.state_dict())
            for path in prune_checkpoints(self.folder, keep=self._config.keep):
                if path not in self._reported:
                    self._reported.add(path)
                    self.report.say(f"{path} is kept: it is a link, or it holds files that are not of this run")
        must_stop = self._agree_on_stop()
        self.budget.note("checkpoint", self.budget.seconds - began)
        return must_stop

    # ---- the beginning and the ends ----

    def _explain_shortness(self) -> str | None:
        """Why a run is too short to learn from, by its steps; with `minutes` by the time of the first evaluation."""
        budget, validation = self.budget, self.splits.validation
        if budget.num_steps is not None:
            num_tokens: float = budget.num_steps * self._config.batch_tokens
        elif validation is not None and (seconds := budget.work_seconds.get("evaluation")):
            speed = int(validation.lengths[: self._config.eval_rows].sum(dtype="int64")) / seconds
            num_tokens = budget.steps_left(0, 1.0) * speed * self._ranks.num_ranks / UPDATE_COST
        else:
            return None
        return explain_shortness(num_tokens, self.session.model.config.vocab_size)

    def _complete(self) -> Path | None:
        """Write what is missing of a run that was killed after its last update."""
        lacks_validation = self._lacks_validation(is_final=True)
        if lacks_validation and not self._evaluate(is_last=True):
            return self._stop()
        if lacks_validation or not is_page_current(self.folder):
            self.report.say("the run was over, but not all of its files were written")
            return self._finish()
        self.report.say("the run is over: nothing is left to do")
        return list_checkpoints(self.folder)[-1]

    def _finish(self) -> Path:
        if self._ranks.is_first:
            self.report.say(f"the curves of the run: {write_run_page(self.folder)}")
        return list_checkpoints(self.folder)[-1]

    def _stop(self) -> Path | None:
        """Say how to resume. Returns the result of `train`."""
        step = self.session.step
        saved = f"step {step:,} is saved" if list_checkpoints(self.folder) else "nothing was trained yet"
        names = f"{quote(self.splits.folder)} --output {quote(self.folder)}"
        self.report.say(f"interrupted; {saved}. Resume with: albert-data train {names} --resume")
        return None
