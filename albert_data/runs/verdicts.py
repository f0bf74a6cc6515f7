"""What the figures of a run say. In: RunFigures. Out: sentences and tables for the terminal and the pages."""

from __future__ import annotations

from statistics import fmean

from albert_data.config import MIN_VALIDATION
from albert_data.examples.pair_tasks import PairTask
from albert_data.runs.figures import LOSS, SHARE, Line, RunFigures, number
from albert_data.text.escaping import escape_controls
from albert_data.text.wording import count_of, format_share

CERTAIN = 3  # standard errors by which an accuracy must be above that of the most frequent label
MOST_ERROR = 0.05  # of the accuracy of a source; above it there are too few rows to judge
MOST_LINES, _WIDTHS = 8, (8, 9, 7, 7, 11, 8)
MUCH_WORSE = 0.5  # nats by which the loss of a source is above that of all
NEAR = 0.05  # nats: losses on 128 rows or more that differ by less may be equal
# Overfitting: nats by which validation is above training. With sound text and few epochs it is 0.1 or less; new masks
# for training, dropout and a mask share that falls make training harder, never easier. Rows must have been read twice:
# in the first epoch each row is as new as those of validation.
OVERFIT, MIN_EPOCHS, LAST_PART = 0.3, 2.0, 0.1


def judge_run(run: RunFigures) -> list[str]:
    """What the newest validation says of a run."""
    last = run.last_validation
    found = (describe_learning(last), describe_worst(last), describe_order(last, run.task), describe_overfitting(run))
    return [text for text in (*found, _describe_few(last)) if text]


def describe_learning(line: Line) -> str:
    """A sentence on what a model learnt beside frequencies, from the last validation of a run; else empty."""
    loss, alone = number(line, "mlm_loss"), number(line, "unigram_loss")
    if loss is None or alone is None:
        return ""
    gain = alone - loss
    learnt = f"The model learnt {'more' if gain > 0 else 'less'} than frequencies"
    if abs(gain) <= NEAR:
        learnt = "It can't be told whether the model learnt more than frequencies"
    return (
        f"{learnt}: its MLM loss is {abs(gain):.3f} {'below' if gain > 0 else 'above'} the {alone:.3f} that the "
        "frequencies of pieces alone give."
    )


def describe_worst(line: Line) -> str:
    """A sentence on the worst source whose loss is far above that of all, and its accuracy surely below; else empty."""
    loss, right = (number(line, name) or 0.0 for name in ("mlm_loss", "mlm_accuracy"))
    for one in filter(is_known, line.get("by_source", [])):
        own, own_right, error = (number(one, f"mlm_{name}") or 0.0 for name in ("loss", "accuracy", "error"))
        if own - loss >= MUCH_WORSE and right - own_right > CERTAIN * error:
            return (
                f"The model knows {escape_controls(str(one.get('name')))} worst: its MLM loss is {own:.3f}, "
                f"{own - loss:.3f} above that of all rows, and {format_share(own_right, 1)} are right, not "
                f"{format_share(right, 1)}. More of its text helps, or a larger share (docs/guides/mixtures.md)."
            )
    return ""


def describe_order(line: Line, task: PairTask) -> str:
    """A sentence if a model has not learnt the sentence task, from the last validation of a run; else empty."""
    accuracy, majority, error = (number(line, f"sop_{key}") for key in ("accuracy", "majority", "error"))
    if accuracy is None or majority is None or error is None or accuracy - majority > CERTAIN * error:
        return ""
    figures = " In books it is learnt late, from an MLM loss of about 3.7 on: docs/guides/training.md has figures."
    usual = figures if task.name == "sop" else ""
    return (
        f"The model has not learnt {task.title}: {format_share(accuracy, 1)} is not clearly more than the "
        f"{format_share(majority, 1)} of the most frequent label.{usual}"
    )


def describe_overfitting(run: RunFigures) -> str:
    """A sentence if the last validation is far above the training before it; empty otherwise."""
    validations, training = run.points("mlm_loss", "validation"), run.points("mlm_loss", "train")
    epochs = run.points("epoch", "train")
    if not validations or not training or not epochs or epochs[-1][1] < MIN_EPOCHS:
        return ""
    last = fmean(value for step, value in training if step > (1 - LAST_PART) * training[-1][0])
    gap = validations[-1][1] - last
    if gap < OVERFIT or last > (run.unigram_loss or last):  # until it knows frequencies, they alone make the difference
        return ""
    step, lowest = min(validations, key=lambda point: point[1])
    best = f" Validation was lowest, {lowest:.3f}, at step {step:,.0f}." if lowest < validations[-1][1] - 0.05 else ""
    return (
        f"The model overfits: its MLM loss on validation, {validations[-1][1]:.3f}, is {gap:.3f} above that on the "
        f"training rows, {last:.3f}, which it read {epochs[-1][1]:,.1f} times.{best} More text helps most; otherwise "
        "train for fewer epochs, with --dropout 0.1, or with a smaller --preset."
    )


def _describe_few(line: Line) -> str:
    """A sentence if the validation rows that a line measured are of few documents; empty otherwise."""
    count = int(number(line, "num_documents") or 0)
    if not 0 < count < MIN_VALIDATION:
        return ""
    documents = count_of(count, "document")
    return f"Validation rows of {documents}, fewer than {MIN_VALIDATION}: these figures are rough."


def is_known(source: Line, head: str = "mlm") -> bool:
    """Whether there are enough labels of a head, "mlm" or "sop"."""
    return number(source, f"{head}_loss") is not None and (number(source, f"{head}_error") or 1) <= MOST_ERROR


def tabulate_sources(line: Line, task: PairTask) -> list[list[str]]:
    """The head of a table and a row for each source; empty if there are none."""
    pair = [f"{task.title} right", "error"] if task.orders else []
    table = [["source", "labels", "MLM loss", "right", "error", *pair]]
    for one in line.get("by_source", []):
        cells = [LOSS(number(one, "mlm_loss") or 0)]
        for head in ("mlm", "sop") if pair else ("mlm",):
            shares = [number(one, f"{head}_{name}") or 0 for name in ("accuracy", "error")]
            cells += map(SHARE, shares) if is_known(one, head) else ["too few", "-"]
        cells = cells if is_known(one) else ["too few rows to judge"]
        table.append([escape_controls(str(one.get("name"))), f"{number(one, 'mlm_labels') or 0:,.0f}", *cells])
    return table if len(table) > 1 else []


def describe_sources(line: Line, task: PairTask, indent: str = "") -> list[str]:
    """The same in lines of at most 80 columns, with the number of sources that are left out."""
    table, num_more = tabulate_sources(line, task)[: MOST_LINES + 1], int(number(line, "num_sources") or 0) - MOST_LINES
    lines = [f"{indent}{name[:22]:<22}" + "".join(map(" {:>{}}".format, cells, _WIDTHS)) for name, *cells in table]
    return [*lines, f"{indent}and {num_more:,} more"] if table and num_more > 0 else lines
