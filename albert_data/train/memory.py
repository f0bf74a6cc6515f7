"""Before and between updates: cuts batches so that they fit in memory, and computes every shape that a run may need.

Nobody can tell beforehand what fits on a GPU: compilers, fragments and other programs take their part. So a run begins
with large micro-batches, and halves them where memory runs out.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

import torch

from albert_data.errors import ConfigError
from albert_data.shards.reader import Shards
from albert_data.text.wording import count_of
from albert_data.train.batch import BatchShape, empty_batch
from albert_data.train.compiling import is_for_all_shapes
from albert_data.train.loader import ShardLoader, fixed_shapes
from albert_data.train.state import Session

MAX_TOKENS = {"cuda": 131_072, "cpu": 8192}  # at once: more make an update no faster
MAX_ELEMENTS = 2**31 - 1  # of a tensor: many kernels count elements in 32 bits


def fit_batches(session: Session, loader: ShardLoader) -> list[str]:
    """Set micro_tokens for the fewest micro-batches of at most MAX_TOKENS, and return a line about it.

    Nor do the logits, one for each masked token and piece, have more elements than a kernel can count.
    Changes nothing if the user chose micro_tokens, or if a step has no more tokens than that.
    """
    kind, longest, vocab_size = session.precision.device.type, loader.longest, session.model.config.vocab_size
    most = MAX_TOKENS[kind]
    num_rows = max(1, most // longest)  # a pack may be longer
    most_masked = max(session.config.mask_prob or 0.0, session.config.last_mask_prob or 0.0)
    capacity = loader.shape(num_rows, longest, most_masked).mask_capacity
    most = min(most, num_rows * longest * (MAX_ELEMENTS // vocab_size) // capacity)
    whole = loader.count_micro_tokens(1)
    if session.config.micro_tokens or whole <= most:
        return []
    counts = range(1, -(-whole // longest) + 1)
    num_batches = next((count for count in counts if loader.count_micro_tokens(count) <= most), counts[-1])
    tokens = loader.micro_tokens = loader.count_micro_tokens(num_batches)
    parts = count_of(num_batches, "micro-batch", "micro-batches")
    return [f"memory      {parts} a step, of {tokens:,} tokens: more make a {kind[-3:].upper()} no faster"]


def halve_batches(session: Session, loader: ShardLoader, shape: tuple[int, ...], error: BaseException) -> str:
    """Make the loader's micro-batches smaller, and return a line that says so.

    error: the OutOfMemoryError of a micro-batch of `shape`, rows and length. Raises ConfigError if it is one row.
    """
    traceback.clear_frames(error.__traceback__)  # the frames refer to the activations
    session.optimizer.zero_grad()
    torch.cuda.empty_cache()
    num_rows, row_len = shape
    smaller = max(loader.longest, num_rows * row_len // 2)
    what = f"a batch of {num_rows * row_len:,} tokens, in rows of {row_len}, does not fit on "
    what += session.precision.device_info
    if smaller >= num_rows * row_len:
        advice = "" if session.config.recompute else "--resume with --recompute, or "
        if (pack := loader.order.pack) is not None and pack.longest < pack.pack_len:  # such a run pads its rows
            advice += f"start another run with --micro-tokens {pack.longest}, or "
        raise ConfigError(f"{what}; {advice}start another run with a smaller --preset") from error
    loader.micro_tokens = smaller
    return f"step {session.step + 1:,}: {what}; from now on at most {smaller:,} tokens are computed at once"


def warm_up(
    session: Session,
    loader: ShardLoader,
    validation: Shards | None,
    *,
    must_stop: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """Compute a batch of zeros of each shape: forward and backward as in an update, or forward as in an evaluation.

    So nothing is compiled in the middle of a run. With `minutes` the learning rate follows the clock, and would rise to
    its peak in a few updates; and the first evaluation would tell a wrong time for the last one.
    Changes no weight, gradient, random state or figure. Ranks wait for each other at the end alone. If memory runs out
    on one, the micro-batches of all are halved: they divide the batches of an evaluation.
    must_stop: called before each shape; at True the rest is left out.
    """
    while True:
        tokens = loader.tokens_at_once  # the same on all ranks
        work = _list_shapes(session, loader, validation)
        say(f"compiling   {count_of(len(work), 'shape')} of batches, before the first update")
        for shape, is_update in work:
            if must_stop():
                break
            try:
                _compute(session, shape, is_update=is_update)
            except torch.cuda.OutOfMemoryError as error:
                say(halve_batches(session, loader, (shape.num_rows, shape.row_len), error))
                break
        if (least := round(min(session.ranks.gather(loader.tokens_at_once)))) == tokens:
            return
        loader.micro_tokens = least


def _list_shapes(session: Session, loader: ShardLoader, validation: Shards | None) -> list[tuple[BatchShape, bool]]:
    """The shapes that the run compiles, and whether each is of updates or of evaluations."""
    # A program for all shapes is compiled by any one.
    last = slice(-1, None) if is_for_all_shapes(session.precision.device) else slice(None)
    work = [(shape, True) for shape in loader.shapes()[last]]
    if validation is not None:
        num_rows, batch_tokens = session.config.eval_rows or len(validation), loader.tokens_at_once
        pack = loader.find_pack(validation)
        shapes = fixed_shapes(validation, num_rows=num_rows, batch_tokens=batch_tokens, pack=pack)
        work += [(shape, False) for shape in shapes[last]]
    return work


def _compute(session: Session, shape: BatchShape, *, is_update: bool) -> None:
    device = session.precision.device
    session.model.train(is_update)
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.set_grad_enabled(is_update):
        with session.precision.autocast():
            window = session.config.first_window if is_update else 0
            output = session.model(empty_batch(shape).to(device), window)
        if is_update:
            torch.autograd.grad(output.mlm_nats + output.sop_nats, list(session.model.parameters()))
    session.model.train()
