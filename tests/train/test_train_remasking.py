"""Later epochs have new valid masks with the shares of the build, which depend only on (seed, epoch, row)."""

from __future__ import annotations

import dataclasses
import random
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from build_fixtures import run_build, write_corpus
from toy_language import make_sentences

from albert_data.errors import ShardError
from albert_data.examples.spans import span_shares
from albert_data.shards.reader import Shards, open_shards
from albert_data.tokenizer.words import WordRule, find_word_starts
from albert_data.train import ShardLoader

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def shards(tmp_path_factory, tokenizer) -> Shards:
    """Rows of a build of made-up English and Chinese."""
    folder = tmp_path_factory.mktemp("remasking")
    sentences = list(make_sentences(20_000, seed=5))
    documents = ["\n".join(sentences[at : at + 40]) for at in range(0, len(sentences), 40)]
    write_corpus(folder / "in", documents, "txt", random.Random(0))
    run_build(folder / "in", folder / "out", tokenizer, max_seq_len=128, validation_fraction=0.0)
    return open_shards(folder / "out")


def read_epoch(loader: ShardLoader) -> dict[int, tuple[list[int], dict[int, int]]]:
    """Return each row's ids and masks (position: original) in the rest of an epoch."""
    found = {}
    for batch in loader:
        row_len = batch.input_ids_BT.shape[1]
        real = batch.masked_labels_N != -1
        places, labels = batch.masked_indices_N[real].tolist(), batch.masked_labels_N[real].tolist()
        masks = [{} for _ in batch.rows]
        for place, label in zip(places, labels, strict=True):
            masks[place // row_len][place % row_len] = label
        for at, row in enumerate(batch.rows.tolist()):
            found[row] = (batch.input_ids_BT[at, : int(batch.valid_BT[at].sum())].tolist(), masks[at])
    return found


def loader_at(shards, epoch: int, **settings) -> ShardLoader:
    loader = ShardLoader(shards, **{"batch_tokens": 2048, **settings})
    loader.load_state_dict({**loader.state_dict(), "epoch": epoch})
    return loader


def originals(ids: list[int], masks: dict[int, int]) -> list[int]:
    return [masks.get(at, token) for at, token in enumerate(ids)]


def test_later_epochs_have_other_masks_over_the_same_text(shards):
    epochs = [read_epoch(loader_at(shards, epoch)) for epoch in range(3)]
    for row in range(len(shards)):
        text = shards[row].original_ids.tolist()
        assert [originals(*epoch[row]) for epoch in epochs] == [text] * 3
    different = [epochs[1][row][1] != epochs[2][row][1] != epochs[0][row][1] for row in range(len(shards))]
    assert np.mean(different) > 0.95  # the shortest rows have few possible masks


def test_without_remasking_every_epoch_has_the_stored_masks(shards):
    first, third = (read_epoch(loader_at(shards, epoch, remask=False)) for epoch in (0, 2))
    assert first == third


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_tokens": 700},
        {"batch_tokens": 50_000},
        {"micro_tokens": 128},
        *({"rank": rank, "num_ranks": 3} for rank in range(3)),
    ],
    ids=str,
)
def test_masks_depend_neither_on_the_batch_nor_on_the_rank(shards, settings):
    whole, found = read_epoch(loader_at(shards, 1)), read_epoch(loader_at(shards, 1, **settings))
    assert found == {row: whole[row] for row in found}
    assert len(found) == len(whole) or "rank" in settings


def test_masks_depend_on_the_seed_the_epoch_and_the_row(shards):
    """A copy of a row with another number has other masks."""
    one = shards.rows(np.full(8, int(np.argmax(shards.lengths))))

    @dataclasses.dataclass
    class Copies:
        manifest = shards.manifest
        tokenizer = shards.tokenizer
        lengths = np.diff(one.offsets)

        def __len__(self) -> int:
            return 8

        def rows(self, indices: np.ndarray):
            return shards.rows(np.full(len(indices), int(np.argmax(shards.lengths))))

    seen = [
        str(masks)
        for seed, epoch in ((0, 1), (0, 2), (1, 1))
        for _, masks in read_epoch(loader_at(Copies(), epoch, seed=seed)).values()
    ]
    assert len(set(seen)) == len(seen) == 24


def test_masks_are_legal(shards):
    """Masks are whole words, at most three in a span of a segment, no special tokens, replaced by ordinary pieces."""
    tokenizer = shards.tokenizer
    specials, ordinary = tokenizer.specials, set(tokenizer.ordinary_ids.tolist())
    for row, (ids, masks) in read_epoch(loader_at(shards, 1)).items():
        text, a_len = np.array(originals(ids, masks)), int(shards[row].segment_a_len)
        for position, original in masks.items():
            assert not specials.is_special[original]
            assert ids[position] in {specials.mask_id, original} | ordinary
        for begin, end in ((1, 1 + a_len), (2 + a_len, len(ids) - 1)):
            run = 0
            for word in words_of(text[begin:end], begin, tokenizer.word_rule()):
                is_masked = [at in masks for at in word]
                assert len(set(is_masked)) == 1
                run = run + 1 if is_masked[0] else 0
                assert run <= 3


def words_of(segment: np.ndarray, begin: int, rule: WordRule) -> list[list[int]]:
    words: list[list[int]] = []
    for at, is_start in enumerate(find_word_starts(segment, rule)):
        if is_start:
            words.append([])
        words[-1].append(begin + at)
    return words


def test_the_shares_are_those_of_the_build(shards):
    """15 % masked, 80/10/10, p(n) of spans: equal in new and in stored masks, within five deviations."""
    for epoch in (0, 1, 2):
        found = read_epoch(loader_at(shards, epoch))
        spans, kinds, excess = np.zeros(4), np.zeros(3), []
        for row, (ids, masks) in found.items():
            text, a_len = np.array(originals(ids, masks)), int(shards[row].segment_a_len)
            maskable = np.count_nonzero(~shards.tokenizer.specials.is_special[text])
            excess.append(len(masks) - 0.15 * maskable)
            for at, original in masks.items():
                kinds[0 if ids[at] == shards.tokenizer.mask_id else 1 if ids[at] != original else 2] += 1
            for begin, end in ((1, 1 + a_len), (2 + a_len, len(ids) - 1)):
                run = 0
                for word in [*words_of(text[begin:end], begin, shards.tokenizer.word_rule()), [-1]]:
                    if word[0] in masks:
                        run += 1
                    elif run:
                        spans[run] += 1
                        run = 0
        assert abs(np.mean(excess)) <= 5 * np.std(excess) / np.sqrt(len(excess))
        num = kinds.sum()
        same = 0.1 / len(shards.tokenizer.ordinary_ids)  # a random piece may be the original
        for count, share in zip(kinds, (0.8, 0.1 - same, 0.1 + same), strict=True):
            assert abs(count / num - share) <= 5 * np.sqrt(share * (1 - share) / num)
        for count, share in zip(spans[1:], span_shares(3), strict=True):
            assert abs(count / spans.sum() - share) <= 5 * np.sqrt(share * (1 - share) / spans.sum())


def test_another_tokenizer_than_the_builds_is_refused(shards):
    other = dataclasses.replace(shards.manifest.tokenizer, sha256="0" * 64)
    copy = Shards(shards.folder, "train", dataclasses.replace(shards.manifest, tokenizer=other))
    with pytest.raises(ShardError, match="put spiece.model of the build back"):
        ShardLoader(copy, batch_tokens=1000)
    assert list(islice(ShardLoader(copy, batch_tokens=1000, remask=False), 1))
    assert next(iter(ShardLoader(Path(shards.folder), batch_tokens=1000))).num_tokens > 0, "it opens a folder itself"


def test_a_schedule_decides_the_share_of_masked_tokens_of_each_step_from_the_first_epoch_on(shards):
    loader = ShardLoader(shards, batch_tokens=8192)
    loader.reserve_masks(0.45)
    shares = []
    for batches in loader.stream(CPU, 8, mask_prob=lambda number: 0.45 if number < 4 else 0.15):
        shares.append(sum(batch.num_masked for batch in batches) / sum(batch.num_tokens for batch in batches))
        assert len(batches[0].masked_labels_N) in {shape.mask_capacity for shape in loader.shapes()}
    assert all(0.4 < share < 0.46 for share in shares[:4])
    assert all(0.12 < share < 0.16 for share in shares[4:])
