"""Pretrains a model on shards and writes a run folder: metrics, checkpoints and a page of curves.

Each update is a function of the state before it, its number and its batch. So a run that was stopped resumes from its
newest checkpoint with the losses that it would have had: on a CPU with as many threads bit for bit, on a GPU as far as
its kernels are deterministic. With --minutes only the rows are the same, as the learning rate follows the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from albert_data.errors import AlbertDataError, ConfigError
from albert_data.train.config import TrainConfig
from albert_data.train.data.batch import Batch
from albert_data.train.data.loader import ShardLoader, Splits, open_training
from albert_data.train.data.order import padded_len, rows_per_batch
from albert_data.train.distributed import Ranks, join_ranks, read_ranks
from albert_data.train.folder import METRICS_FILE, TRACE_FILE, check_folder, claim_folder, lock_folder
from albert_data.train.history.figures import read_run
from albert_data.train.history.page import is_page_current, write_run_page
from albert_data.train.model.checkpoint import list_checkpoints, prune_checkpoints
from albert_data.train.model.flops import peak_flops, training_flops
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
from albert_data.train.run.compiling import warm_up
from albert_data.train.run.evaluation import evaluate, measure_baseline
from albert_data.train.run.guesses import Guesser, make_guesser, to_lines
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
    Initial,
    Session,
    check_agreement,
    explain_stop,
    identify_run,
    make_loader,
    restore_newest,
    save_session,
    start_session,
    update,
)


def train(
    shards: Path,
    run: Path,
    config: TrainConfig,
    *,
    resume: bool = False,
    initial: Initial | None = None,
    interrupt: Interrupt | None = None,
) -> Path | None:
    """Train on a shard folder and return the last checkpoint in `run`, or None if the run was interrupted.

    resume: continue from the newest checkpoint in `run`; settings and shards have to be the same. If the run is
    finished, write its last validation and its page if they are missing.
    initial: weights to begin with. interrupt: tells the caller which signal came. Ctrl-C, SIGTERM and SIGHUP save a
    checkpoint, a second Ctrl-C does not. Seeds PyTorch's global generators.
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
        session = start_session(config, shape, precision, ranks, identity, initial)
        # Before the ranks disconnect: if DDP is the last owner of their group, PyTorch's destructor can wait forever.
        stack.callback(setattr, session, "network", session.model)
        if config.tensorboard:
            require_tensorboard()
        stack.enter_context(interrupt)
        warning: list[str] = []
        if ranks.is_first:
            warning = stack.enter_context(lock_folder(run, resume=resume))
            claim_folder(run, shards, config, shape, identity, resume=resume)
        ranks.wait()
        spent = restore_newest(session, loader, run) if resume else {}
        check_agreement(session, run)
        if loader.is_packed and obstacle is not None:  # a run that resumes keeps what it began with
            raise ConfigError(f"can't resume here: the run's rows are packed, and {obstacle}; resume where the run was")
        budget = Budget(config, loader.steps_per_epoch, began=began, **spent)
        report = stack.enter_context(closing(Report(budget, precision.device, shape.task, is_first=ranks.is_first)))
        for line in (f"run         {run}", *describe_start(session, loader, obstacle, splits, budget), *warning):
            report.say(line)
        return _Loop(session, splits, run, report, budget, loader, interrupt).run(save_first=initial is not None)


class _Loop:
    """The updates of one process, and the metrics lines, evaluations and checkpoints between them."""

    def __init__(
        self,
        session: Session,
        splits: Splits,
        run: Path,
        report: Report,
        budget: Budget,
        loader: ShardLoader,
        interrupt: Interrupt,
    ) -> None:
        self._session, self._splits, self._run = session, splits, run
        self._report, self._budget, self._loader, self._interrupt = report, budget, loader, interrupt
        self._ranks: Ranks = session.ranks
        self._reported: set[Path] = set()
        self._rate = 0.0
        self._share = 0.0  # of the run that is done, by the first rank's clock
        # None on a CPU: its device_info is no name of a GPU.
        self._peak = peak_flops(session.precision.device_info, session.precision.format)
        self._rows: list[np.ndarray] = []  # of the last update, on this rank
        self._guesser: Guesser | None = None
        self._is_guessed = False
        if self._ranks.is_first:
            self._metrics = MetricsFile(run / METRICS_FILE, keep_until_step=session.step, say=report.say)
            self._tensorboard = TensorBoardWriter(run, step=session.step) if session.config.tensorboard else None
            self._guesser = make_guesser(splits.validation, report.say)

    def run(self, *, save_first: bool) -> Path | None:
        """Train to the end or to a signal. save_first: write a checkpoint of step 0 too."""
        try:
            return self._run_steps(save_first=save_first)
        finally:
            if self._ranks.is_first and self._tensorboard is not None:
                self._tensorboard.close()

    def _run_steps(self, *, save_first: bool) -> Path | None:
        session, config = self._session, self._session.config
        if save_first:  # the weights were loaded, so --resume can't draw them again from the seed
            self._save()
        if session.step:
            is_finished = self._agree_on_share() >= 1
            self._report.say(f"resuming at step {session.step:,}")
            if is_finished:
                return self._complete()
        for line in fit_batches(session, self._loader):
            self._report.say(line)
        if self._budget.is_timed and session.is_compiled:
            warm_up(
                session,
                self._loader,
                self._splits.validation,
                must_stop=lambda: self._interrupt.stop_requested or self._budget.share_done(session.step) >= 1,
                say=self._report.say,
            )
        is_stopped = config.eval_every and session.step and session.step % config.eval_every == 0
        if is_stopped and self._lacks_validation(is_final=False):
            self._evaluate(is_last=False)  # the run was stopped during this evaluation
        if self._budget.is_timed and session.step == 0:
            if self._agree_on_share() < 1:
                self._evaluate(is_last=False)  # to know how long the last one will take
            if self._agree_on_share() >= 1:
                raise ConfigError(
                    f"minutes is {config.minutes:g}; the start took {self._budget.seconds:.0f} seconds, and the end "
                    f"will take {self._budget.end_seconds:.0f}: no time is left for training; raise --minutes, "
                    "or lower --eval-rows"
                )
        if session.step == 0 and not save_first and (reason := self._explain_shortness()):
            self._report.say(reason)
        if self._agree_on_stop():
            return self._stop()
        return self._train_on()

    def _explain_shortness(self) -> str | None:
        """Why a run is too short to learn from, by its steps; with `minutes` by the time of the first evaluation."""
        budget, config, validation = self._budget, self._session.config, self._splits.validation
        if budget.num_steps is not None:
            num_tokens: float = budget.num_steps * config.batch_tokens
        elif validation is not None and (seconds := budget.work_seconds.get("evaluation")):
            speed = int(validation.lengths[: self._eval_rows].sum(dtype="int64")) / seconds
            num_tokens = budget.steps_left(0, 1.0) * speed * self._ranks.num_ranks / UPDATE_COST
        else:
            return None
        return explain_shortness(num_tokens, self._session.model.config.vocab_size)

    def _train_on(self) -> Path | None:
        session, config = self._session, self._session.config
        self._budget.begin(session.step)
        self._share = self._agree_on_share()
        intervals = Intervals(config, session.step, self._share)
        lap = self._budget.seconds
        steps = self._read_steps()
        while True:
            before = self._loader.state_dict()
            batches = next(steps)
            try:
                is_last, must_stop = self._update(batches)
            except torch.cuda.OutOfMemoryError as error:
                num_rows, row_len = batches[0].input_ids_BT.shape
                self._report.say(halve_batches(session, self._loader, (num_rows, row_len), error))
                self._loader.load_state_dict(before)  # the stream may have read ahead: read this step again
                steps = self._read_steps()
                continue
            # Reading the sums waits for the GPU, so the lap includes all of its work.
            now = session.step, self._share
            values = self._read_tally() if is_last or intervals.is_due("log", *now) else None
            session.tally.seconds += self._budget.seconds - lap
            if values is not None:
                self._log(values)
                intervals.note("log", *now)
            is_evaluated = True
            if is_last or (intervals.is_due("evaluation", *now) and self._agree_on_time("evaluation")):
                is_evaluated = self._evaluate(is_last=is_last)
                intervals.note("evaluation", *now)
            must_stop = must_stop or not is_evaluated
            is_due = intervals.is_due("checkpoint", *now) and self._agree_on_time("checkpoint")
            if is_last or must_stop or is_due:
                must_stop = self._save() or must_stop
                intervals.note("checkpoint", *now)
            if is_last and is_evaluated:
                return self._finish()
            if must_stop:
                return self._stop()
            lap = self._budget.seconds

    def _read_steps(self) -> Iterator[list[Batch]]:
        session, first = self._session, self._session.step
        is_set = session.config.mask_prob is not None
        mask_prob = (lambda number: self._budget.mask_prob(first + number)) if is_set else None
        steps = self._loader.stream(session.precision.device, mask_prob=mask_prob)
        if session.config.profile and self._ranks.is_first:
            return profile_steps(steps, self._run / TRACE_FILE, self._report.say)
        return steps

    def _agree_on_stop(self) -> bool:
        """Whether any rank received a signal. All ranks then know which."""
        return self._interrupt.agree(self._ranks.sum(self._interrupt.flags()))

    def _lacks_validation(self, *, is_final: bool) -> bool:
        """Whether the first rank's metrics file lacks a validation of this step, or the one at the end of the run."""
        if self._splits.validation is None:
            return False
        lacks = self._ranks.is_first and not self._metrics.has_validation(self._session.step, is_final=is_final)
        return self._ranks.sum([lacks])[0] > 0

    def _agree_on_time(self, work: str) -> bool:
        """Whether an "evaluation" or a "checkpoint" ends before the last one begins, by the first rank's clock.

        If its interval was not given, it also has to be a small share of the time.
        """
        is_rested = getattr(self._session.config, FIELDS[work]) is not None or self._budget.is_rested(work)
        return self._ranks.sum([self._ranks.is_first and is_rested and self._budget.has_time(work)])[0] > 0

    def _agree_on_share(self) -> float:
        """The share of the run that is done, by the first rank's clock."""
        share = self._budget.share_done(self._session.step) if self._ranks.is_first else 0.0
        return self._ranks.sum([share])[0]

    def _update(self, batches: list[Batch]) -> tuple[bool, bool]:
        """Make a step. Returns whether it is the last of the run, and whether a signal asks to stop."""
        session, budget, ranks = self._session, self._budget, self._ranks
        num_masked, num_pairs, share, per_step, *signals = ranks.sum(
            [
                sum(batch.num_masked for batch in batches),
                sum(batch.num_pairs for batch in batches),
                budget.share_done(session.step) if ranks.is_first else 0.0,
                budget.share_per_step(session.step) if ranks.is_first else 0.0,
                *self._interrupt.flags(),
            ]
        )
        self._share = share + per_step
        self._rate = budget.rate(session.step, share, per_step)
        is_last = budget.is_last(session.step, share, per_step)
        self._rows = [batch.rows for batch in batches]
        update(session, batches, lr=self._rate, num_masked=num_masked, num_pairs=num_pairs)
        for batch in batches:
            session.tally.num_flops += training_flops(
                session.model.config,
                num_rows=len(batch.sop_labels_B),
                num_tokens=batch.input_ids_BT.numel(),
                row_len=batch.attended_len or batch.input_ids_BT.shape[1],
                num_masked=len(batch.masked_indices_N),
            )
        self._report.advance(share, session.step, ranks.num_ranks * sum(batch.num_tokens for batch in batches))
        return is_last, self._interrupt.agree(signals)

    @property
    def _eval_rows(self) -> int:
        num_rows = self._session.config.eval_rows
        assert num_rows is not None, "choose_intervals fills it in"
        return num_rows

    def _read_tally(self) -> Figures:
        """Return the figures since the last line. Raises AlbertDataError if the run can't go on."""
        if (reason := explain_stop(self._session, self._rows, self._splits.folder)) is not None:
            raise AlbertDataError(f"{self._run}: {reason}")
        return self._session.tally.read(self._ranks)

    def _log(self, values: Figures) -> None:
        session, tally = self._session, self._session.tally
        num_tokens, num_cells = self._ranks.sum([tally.num_tokens, tally.num_cells])
        speed = num_tokens / tally.seconds
        line: dict[str, Any] = {
            **values,
            "lr": self._rate,
            "epoch": round(self._loader.epochs_read, 4),
            "padding_share": 1 - num_tokens / num_cells,
            "tokens_per_second": round(speed, 1),
            "seconds": round(self._budget.seconds, 3),
            **peak_gb(session.precision.device),
        }
        if self._peak is not None:  # the peak of one GPU, so the FLOPs of one rank
            line["mfu"] = round(tally.num_flops / tally.seconds / self._peak, 4)
        if (num_skipped := tally.num_skipped()) or session.precision.is_scaled:
            line["skipped_steps"] = num_skipped
        self._write("train", line)
        self._report.show(session.step, line)
        tally.begin_line()

    def _evaluate(self, *, is_last: bool) -> bool:
        """Write the figures of the validation rows. Returns False if a signal interrupted the evaluation."""
        session, validation = self._session, self._splits.validation
        if validation is None:
            return True
        self._read_tally()  # raises if the weights may not be finite
        began = self._budget.seconds
        nats_R = np.zeros(min(self._eval_rows, len(validation))) if is_last else None
        try:
            values: dict[str, Any] = evaluate(
                session.model,
                validation,
                session.precision,
                num_rows=self._eval_rows,
                batch_tokens=self._loader.tokens_at_once,
                ranks=self._ranks,
                must_stop=lambda: self._interrupt.stop_requested,
                nats_R=nats_R,
            )
        except torch.cuda.OutOfMemoryError as error:
            row_len = padded_len(int(validation.lengths.max()))
            num_rows = rows_per_batch(row_len, self._loader.tokens_at_once)
            self._report.say(halve_batches(session, self._loader, (num_rows, row_len), error))
            return self._evaluate(is_last=is_last)
        if self._agree_on_stop():
            return False
        if not all(value is None or math.isfinite(value) for value in values.values()):
            raise AlbertDataError(f"{self._run}: validation at step {session.step} is not finite ({values})")
        answers = self._guesser.ask(session.model) if self._guesser is not None else []
        self._budget.note("evaluation", self._budget.seconds - began)
        if answers:
            values["guesses"] = "\n".join(map("\t".join, answers))  # control characters in them are escaped
        if not is_last:
            self._write("validation", values)
            self._report.say(f"step {session.step:,}: validation {describe(values, session.model.config.task)}")
        elif self._ranks.is_first:
            baseline = measure_baseline(self._splits.train, validation, num_rows=self._eval_rows)
            known = {} if baseline is None or nats_R is None else baseline.compare(values["mlm_loss"], nats_R)
            self._write("validation", {**values, **known})
            self._report.say(describe_end(read_run(self._run)))
        if is_last or not self._is_guessed:  # the page has them too; ten evaluations of a minute would fill the screen
            for line in to_lines(answers):
                self._report.say(line)
            self._is_guessed = True
        return True

    def _write(self, split: str, line: dict[str, Any]) -> None:
        if self._ranks.is_first:
            self._metrics.write(step=self._session.step, split=split, **line)
            if self._tensorboard is not None:
                self._tensorboard.write(split, self._session.step, line)

    def _save(self) -> bool:
        """Write a checkpoint. Returns whether any rank received a signal before it was complete."""
        self._read_tally()  # raises if the weights may not be finite: no checkpoint has such weights
        began = self._budget.seconds
        self._session.tally.gather(self._ranks)
        if self._ranks.is_first:
            save_session(self._session, self._budget, self._run, self._loader.state_dict())
            for path in prune_checkpoints(self._run, keep=self._session.config.keep):
                if path not in self._reported:
                    self._reported.add(path)
                    self._report.say(f"{path} is kept: it is a link, or it holds files that are not of this run")
        must_stop = self._agree_on_stop()
        self._budget.note("checkpoint", self._budget.seconds - began)
        return must_stop

    def _complete(self) -> Path | None:
        """Write what is missing of a run that was killed after its last update."""
        lacks_validation = self._lacks_validation(is_final=True)
        if lacks_validation and not self._evaluate(is_last=True):
            return self._stop()
        if lacks_validation or not is_page_current(self._run):
            self._report.say("the run was over, but not all of its files were written")
            return self._finish()
        self._report.say("the run is over: nothing is left to do")
        return list_checkpoints(self._run)[-1]

    def _finish(self) -> Path:
        if self._ranks.is_first:
            self._report.say(f"the curves of the run: {write_run_page(self._run)}")
        return list_checkpoints(self._run)[-1]

    def _stop(self) -> Path | None:
        """Say how to resume. Returns the result of `train`."""
        step = self._session.step
        saved = f"step {step:,} is saved" if list_checkpoints(self._run) else "nothing was trained yet"
        self._report.say(
            f"interrupted; {saved}. Resume with: albert-data train {self._splits.folder} --output {self._run} --resume"
        )
        return None
