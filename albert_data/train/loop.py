"""Pretrains a model on shards and writes a run folder: metrics, checkpoints and a page of curves.

Each update is a function of the state before it, its number and its batch. So a run that was stopped resumes from its
newest checkpoint with the losses that it would have had: on a CPU with as many threads bit for bit, on a GPU as far as
its kernels are deterministic. With --minutes only the rows are the same, as the learning rate follows the clock.

`train` opens everything, and `make_updates` is the loop; below it is what comes before, between and after the updates.
All ranks run the same code. Where the clock, a signal or a file decides, they first agree (`Ranks` in device.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from albert_data.errors import AlbertDataError, ConfigError
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.progress import NullProgress
from albert_data.runs.figures import read_run
from albert_data.runs.page import write_run_page
from albert_data.shards.card import describe_text
from albert_data.text.escaping import quote
from albert_data.text.output import tell
from albert_data.train.batch import Batch
from albert_data.train.checkpoint import list_checkpoints, prune_checkpoints
from albert_data.train.compiling import COMPILING
from albert_data.train.config import TrainConfig
from albert_data.train.device import check_gpus, choose_device, choose_precision, join_ranks, peak_gb, read_ranks
from albert_data.train.evaluation import evaluate, measure_baseline
from albert_data.train.flops import batch_flops, peak_flops
from albert_data.train.folder import METRICS_FILE, TRACE_FILE, check_folder, claim_folder, lock_folder
from albert_data.train.graphs import Graphs, explain_no_graphs
from albert_data.train.guesses import Answer, Guesser, make_guesser, to_lines
from albert_data.train.interrupt import Interrupt
from albert_data.train.loader import ShardLoader, Splits, open_training
from albert_data.train.memory import fit_batches, halve_batches, warm_up
from albert_data.train.metrics import MetricsFile
from albert_data.train.order import padded_len, rows_per_batch
from albert_data.train.schedule import WORK, Budget, Intervals, choose_intervals, count_steps
from albert_data.train.state import (
    Initial,
    Session,
    check_agreement,
    identify_run,
    make_loader,
    restore_newest,
    save_session,
    start_session,
)
from albert_data.train.tell import Report, describe, describe_end, describe_start, profile_steps
from albert_data.train.update import explain_stop, update


@dataclass(frozen=True, kw_only=True)
class Training:
    """All that the loop works with. metrics, guesser: on the first rank; a guesser only if the settings ask for it."""

    session: Session
    loader: ShardLoader
    splits: Splits
    folder: Path
    budget: Budget
    report: Report
    interrupt: Interrupt
    metrics: MetricsFile | None
    guesser: Guesser | None


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What all ranks know of an update before they make it.

    num_masked, num_pairs: its labels over all ranks.
    share_after: of the run that is done after it, by the first rank's clock.
    lr, window: its learning rate; how many tokens to each side attention reaches, 0 for whole rows.
    must_stop: whether a signal came to any rank.
    """

    num_masked: float
    num_pairs: float
    share_after: float
    lr: float
    window: int
    is_last: bool
    must_stop: bool


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
        manifest = splits.train.manifest
        shape, identity, attention = identify_run(manifest, run if resume else None, config, precision, ranks, initial)
        loader, pack_obstacle = make_loader(splits.train, config, precision, ranks, attention.obstacle)
        num_steps = count_steps(config, loader.steps_per_epoch)
        config = choose_intervals(config, num_steps, manifest.config.examples.max_seq_len)
        start = partial(start_session, config, shape, precision, ranks, identity, initial)
        session = compile_with_notice(start, tell if ranks.is_first and is_shown else NullProgress().say, COMPILING)
        stack.enter_context(interrupt)
        if ranks.is_first:
            stack.enter_context(lock_folder(run))
            text = describe_text(manifest, sources=[source.name for source in manifest.plan.mixture or ()])
            origin = None if initial is None else initial.origin
            claim_folder(run, shards, config, shape, identity, resume=resume, text=text, init_from=origin)
        ranks.wait()
        spent = restore_newest(session, loader, run, initial) if resume else {}
        check_agreement(session, run)
        if loader.is_packed and pack_obstacle is not None:  # a run that resumes keeps what it began with
            why = f"the run's rows are packed, and {pack_obstacle}"
            raise ConfigError(f"can't resume here: {why}; resume where the run was")
        budget = Budget(config, loader.steps_per_epoch, began=began, **spent)
        report = Report(budget, shape.task, is_shown=ranks.is_first and is_shown)
        report.say(f"run         {run}", *describe_start(session, loader, pack_obstacle, splits, budget))
        report.say(*(f"attention   {note}" for note in attention.notes if ranks.is_first))
        opened = Training(
            session=session,
            loader=loader,
            splits=splits,
            folder=run,
            budget=budget,
            report=report,
            interrupt=interrupt,
            metrics=MetricsFile(run / METRICS_FILE, keep_until_step=session.step) if ranks.is_first else None,
            guesser=make_guesser(splits.validation, report.say) if config.guesses and ranks.is_first else None,
        )
        if initial is not None:  # the weights were loaded, so --resume can't draw them again from the seed
            check_weights(opened)
            save(opened)
        if session.step:
            report.say(f"resuming at step {session.step:,}")
            if measure_share(opened) >= 1:
                return complete(opened)
        if prepare(opened) and make_updates(opened):
            return finish(opened)
        return stop(opened)


def make_updates(run: Training) -> bool:
    """The loop: an update, then what is due. Returns True at the end of the run, False if a signal came before."""
    session, loader, budget = run.session, run.loader, run.budget
    budget.begin(session.step)
    intervals = Intervals(session.config, session.step, measure_share(run))
    position, steps = loader.state_dict(), read_steps(run)
    lap, is_over, must_stop = budget.seconds, False, False
    while not (is_over or must_stop):
        batches = next(steps)
        moment = agree(run, batches)
        labels = {"num_masked": moment.num_masked, "num_pairs": moment.num_pairs}
        try:
            update(session, batches, lr=moment.lr, window=moment.window, **labels)
        except torch.cuda.OutOfMemoryError as error:
            run.report.say(halve_batches(session, loader, tuple(batches[0].input_ids_BT.shape), error))
            loader.load_state_dict(position)  # the loader stands behind this step, or ahead of it
            steps = read_steps(run)
            continue  # with the same step
        position = loader.state_dict()
        session.tally.num_flops += sum(batch_flops(session.model.config, batch) for batch in batches)
        due, must_stop = find_due(run, intervals, moment), moment.must_stop
        if due or must_stop:
            check_weights(run)  # waits for the GPU, so the lap has all of its work
        session.tally.seconds += budget.seconds - lap
        if "log" in due:
            log(run, moment)
        is_over = moment.is_last
        if "evaluation" in due and not evaluate_rows(run, is_last=moment.is_last):
            is_over, must_stop = False, True
        if "checkpoint" in due or must_stop:
            must_stop = save(run) or must_stop
        lap = budget.seconds
    return is_over


# ---- before the updates ----


def prepare(run: Training) -> bool:
    """Choose micro-batches, compile, and make the evaluations that come before an update. Returns False at a signal.

    Raises ConfigError if no time is left for training.
    """
    session, budget, report = run.session, run.budget, run.report
    report.say(*fit_batches(session, run.loader))
    if session.is_compiled:
        warm_up(
            session,
            run.loader,
            run.splits.validation,
            must_stop=lambda: bool(run.interrupt.number) or budget.share_done(session.step) >= 1,
            say=report.say,
        )
    if session.config.graphs is not False:
        is_divided = run.loader.tokens_at_once * session.ranks.num_ranks < session.config.batch_tokens
        if (reason := explain_no_graphs(session, is_divided=is_divided)) is None:
            session.replay = Graphs(session, report.say).replay
        elif session.config.graphs:
            report.say(f"graphs      none: {reason}")
    every, minutes = session.config.eval_every, session.config.minutes
    if every and session.step and session.step % every == 0 and lacks_validation(run, is_final=False):
        evaluate_rows(run, is_last=False)  # the run was stopped during this evaluation
    if minutes is not None and session.step == 0:
        if measure_share(run) < 1:
            evaluate_rows(run, is_last=False)  # to know how long the last one will take
        if measure_share(run) >= 1:
            raise ConfigError(
                f"minutes is {minutes:g}; the start took {budget.seconds:.0f} seconds, and the end will take "
                f"{budget.end_seconds:.0f}: no time is left for training; start another run with more --minutes, or "
                "--resume with fewer --eval-rows"
            )
    return not agree_on_stop(run)


def read_steps(run: Training) -> Iterator[list[Batch]]:
    """The batches of each step from the loader's position on. A GPU's are read ahead by a thread."""
    session, first = run.session, run.session.step
    prob = None if session.config.mask_prob is None else lambda number: run.budget.mask_prob(first + number)
    steps = run.loader.stream(session.precision.device, mask_prob=prob)
    if session.config.profile and session.ranks.is_first:
        return profile_steps(steps, run.folder / TRACE_FILE, run.report)
    return steps


# ---- what the ranks agree on ----


def agree(run: Training, batches: Sequence[Batch]) -> Moment:
    """Add up what each rank knows of an update: one exchange, for which no GPU waits."""
    session, budget, is_first = run.session, run.budget, run.session.ranks.is_first
    num_masked, num_pairs, share_before, per_step, *signals = session.ranks.sum(
        [
            sum(batch.num_masked for batch in batches),
            sum(batch.num_pairs for batch in batches),
            budget.share_done(session.step) if is_first else 0.0,
            budget.share_per_step(session.step) if is_first else 0.0,
            *run.interrupt.flags(),
        ]
    )
    return Moment(
        num_masked=num_masked,
        num_pairs=num_pairs,
        share_after=share_before + per_step,
        lr=budget.rate(session.step, share_before, per_step),
        window=budget.window(share_before, run.splits.train.manifest.config.examples.max_seq_len),
        is_last=budget.is_last(session.step, share_before, per_step),
        must_stop=run.interrupt.agree(signals),
    )


def agree_on_stop(run: Training) -> bool:
    """Whether any rank received a signal. All ranks then know which."""
    return run.interrupt.agree(run.session.ranks.sum(run.interrupt.flags()))


def measure_share(run: Training) -> float:
    """The share of the run that is done."""
    return run.session.ranks.follow_first(lambda: run.budget.share_done(run.session.step))


def lacks_validation(run: Training, *, is_final: bool) -> bool:
    """Whether the metrics file lacks a validation of this step, or the one at the end of the run."""
    if run.splits.validation is None:
        return False
    step, metrics = run.session.step, run.metrics
    return bool(
        run.session.ranks.follow_first(lambda: not (metrics and metrics.has_validation(step, is_final=is_final)))
    )


def find_due(run: Training, intervals: Intervals, moment: Moment) -> set[str]:
    """Which of WORK come after this update; their intervals begin anew.

    An evaluation and a checkpoint have to be free to come; see `Budget.is_free`.
    """
    step, due = run.session.step, set[str]()
    for work in WORK:
        is_due = moment.is_last or intervals.is_due(work, step, moment.share_after)
        if is_due and work != "log" and not moment.is_last:
            is_due = bool(run.session.ranks.follow_first(partial(run.budget.is_free, work, *due - {"log"})))
        due |= {work} if is_due else set()
    for work in due:
        intervals.note(work, step, moment.share_after)
    return due


# ---- what comes between the updates ----


def check_weights(run: Training) -> None:
    """Raise AlbertDataError if the run can't go on. Waits for the GPU."""
    if (reason := explain_stop(run.session)) is not None:
        raise AlbertDataError(f"{run.folder}: {reason}")


def log(run: Training, moment: Moment) -> None:
    """Write the figures since the last line."""
    session, tally, ranks = run.session, run.session.tally, run.session.ranks
    num_tokens, num_cells = ranks.sum([tally.num_tokens, tally.num_cells])
    line: dict[str, Any] = {
        **tally.read(ranks),
        "lr": moment.lr,
        "epoch": round(run.loader.epochs_read, 4),
        "padding_share": 1 - num_tokens / num_cells,
        "tokens_per_second": round(num_tokens / tally.seconds, 1),
        "seconds": round(run.budget.seconds, 3),
        **peak_gb(session.precision.device),
    }
    peak = peak_flops(session.precision.device_info, session.precision.format)
    if peak is not None:  # that of one GPU, so the FLOPs of one rank
        line["mfu"] = round(tally.num_flops / tally.seconds / peak, 4)
    if (num_skipped := tally.num_skipped()) or session.scaler is not None:
        line["skipped_steps"] = num_skipped
    write(run, "train", line)
    run.report.show(session.step, line)
    tally.begin_line()


def write(run: Training, split: str, line: dict[str, Any]) -> None:
    """Write a line of metrics, on the first rank."""
    if run.metrics is not None:
        run.metrics.write(step=run.session.step, split=split, **line)


def evaluate_rows(run: Training, *, is_last: bool) -> bool:
    """Write the figures of the validation rows. Returns False if a signal interrupted the evaluation."""
    session, loader, validation, report = run.session, run.loader, run.splits.validation, run.report
    if validation is None:
        return True
    num_rows = session.config.eval_rows
    assert num_rows is not None, "choose_intervals fills it in"
    began = run.budget.seconds
    pack = loader.find_pack(validation)
    try:
        values: dict[str, Any] = evaluate(
            session.model,
            validation,
            session.precision,
            num_rows=num_rows,
            batch_tokens=loader.tokens_at_once,
            pack=pack,
            ranks=session.ranks,
            must_stop=lambda: bool(run.interrupt.number),
        )
    except torch.cuda.OutOfMemoryError as error:
        row_len = padded_len(int(validation.lengths.max())) if pack is None else pack.pack_len
        shape = rows_per_batch(row_len, loader.tokens_at_once), row_len
        report.say(halve_batches(session, loader, shape, error))
        return evaluate_rows(run, is_last=is_last)
    if agree_on_stop(run):
        return False
    parts = [values, *values.get("by_source", [])]
    if not all(math.isfinite(value) for part in parts for value in part.values() if isinstance(value, float)):
        raise AlbertDataError(f"{run.folder}: validation at step {session.step} is not finite ({values})")
    answers: list[Answer] = []
    with suppress(torch.cuda.OutOfMemoryError):  # guesses are not worth the run
        answers = run.guesser.ask(session.model) if run.guesser is not None else []
    run.budget.note("evaluation", run.budget.seconds - began)
    if not session.ranks.is_first:
        return True
    if answers:
        values["guesses"] = "\n".join(map("\t".join, answers))  # control characters in them are escaped
    if is_last and (loss := values["mlm_loss"]) is not None:
        values |= measure_baseline(run.splits.train, validation, num_rows=num_rows, loss=loss)
    write(run, "validation", values)
    text = f"step {session.step:,}: validation {describe(values, session.model.config.task)}"
    report.say(*(describe_end(read_run(run.folder)) if is_last else [text]))
    if is_last:  # the page has those of the first evaluation too
        report.say(*to_lines(answers))
    return True


def save(run: Training) -> bool:
    """Write a checkpoint. Returns whether any rank received a signal before it was complete."""
    session, began = run.session, run.budget.seconds
    if session.ranks.is_first:
        save_session(session, run.budget, run.folder, run.loader.state_dict())
        prune_checkpoints(run.folder, keep=session.config.keep)
    must_stop = agree_on_stop(run)
    run.budget.note("checkpoint", run.budget.seconds - began)
    return must_stop


# ---- the ends ----


def complete(run: Training) -> Path | None:
    """Write what is missing of a run that was killed after its last update."""
    if lacks_validation(run, is_final=True) and not evaluate_rows(run, is_last=True):
        return stop(run)
    run.report.say("the run is over: nothing is left to train")
    return finish(run)


def finish(run: Training) -> Path:
    """Write the page. Returns the last checkpoint."""
    if run.session.ranks.is_first:
        run.report.say(f"the curves of the run: {write_run_page(run.folder)}")
    return list_checkpoints(run.folder)[-1]


def stop(run: Training) -> Path | None:
    """Say how to resume. Returns the result of `train`."""
    step = run.session.step
    saved = f"step {step:,} is saved" if list_checkpoints(run.folder) else "nothing was trained yet"
    names = f"{quote(run.splits.folder)} --output {quote(run.folder)}"
    run.report.say(f"interrupted; {saved}. Resume with: albert-data train {names} --resume")
    return None
