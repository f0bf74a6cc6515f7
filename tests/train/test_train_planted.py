"""A small model finds what tells the order of two segments, wherever it stands, while it learns to fill masks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from toy_rows import FIRST_ORDINARY, MASK, FakeShards

from albert_data.pair_tasks import NO_LABEL
from albert_data.train.config import RECIPES
from albert_data.train.run import loop

PLANTED, SHARE = FIRST_ORDINARY, 0.3
VOCAB = 200


def plant(shards: FakeShards, *, seed: int) -> FakeShards:
    """Make each segment count upwards from a random piece, and plant a word in the later one of a part of the pairs."""
    examples, random = shards.examples, np.random.default_rng(seed)
    ids, labels = examples.input_ids.copy(), examples.masked_ids.copy()
    for row, (begin, end) in enumerate(zip(examples.offsets, examples.offsets[1:], strict=False)):
        second = begin + examples.segment_a_len[row] + 2
        spans = [(begin + 1, second - 1), (second, end - 1)]
        originals = ids[begin:end].copy()
        for first, last in spans:
            counted = random.integers(VOCAB) + np.arange(last - first)
            originals[first - begin : last - begin] = PLANTED + 1 + counted % (VOCAB - PLANTED - 1)
        masked = slice(*examples.mask_offsets[row : row + 2])
        places = examples.masked_positions[masked]
        labels[masked], originals[places] = originals[places], MASK
        ids[begin:end] = originals
        later = spans[int(examples.sop_label[row] == 0)]  # 0: in order
        free = [place for place in range(*later) if ids[place] != MASK]
        if examples.sop_label[row] != NO_LABEL and random.random() < SHARE and free:
            ids[random.choice(free)] = PLANTED
    return FakeShards(dataclasses.replace(examples, input_ids=ids, masked_ids=labels), shards.manifest)


@pytest.mark.slow
def test_a_word_in_the_later_segment_of_a_part_of_the_pairs_is_found(toys, use_shards, tmp_path):
    kind = {"vocab_size": VOCAB, "max_seq_len": 64}
    train, validation = (plant(toys.make_shards(num, **kind, seed=num), seed=num) for num in (20_000, 4000))
    use_shards(train, validation)
    recipe = dataclasses.replace(
        RECIPES["quick"]["mini"], preset="tiny", minutes=None, steps=1000, weight_init="scaled"
    )
    loop.train(tmp_path / "out", tmp_path / "run", dataclasses.replace(recipe, eval_rows=4000, device="cpu"))
    last = toys.read_metrics(tmp_path / "run")[-1]
    # Where the word is missing, a guess is right as often as the most frequent label.
    assert last["sop_accuracy"] > SHARE + (1 - SHARE) * last["sop_majority"] - 3 * last["sop_error"]
