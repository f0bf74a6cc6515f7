"""Shingles, signatures, sorting on the disk, and which of similar documents stays: each against plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import dedup_reference as reference
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from albert_data.data import DocumentColumns, Lines
from albert_data.errors import OutputError
from albert_data.survey import near_duplicates, parts, sorted_columns
from albert_data.survey.near_duplicates import NearDuplicates, find_near_duplicates
from albert_data.survey.parts import PartWriter
from albert_data.survey.shingles import hash_shingles
from albert_data.survey.signatures import Bands, choose_bands, make_signatures
from albert_data.survey.sorted_columns import merge_columns, write_columns
from albert_data.survey.staying import MOST_STAYING, BucketedDocuments, Buckets, choose_staying


@pytest.fixture(autouse=True, scope="module")
def few_rows_of_a_file() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_columns, "_ROWS_OF_FILE", 1)
        yield


# ---- shingles ----

WORDS = st.text(st.sampled_from("ab.é’“我们。ไทย가\U00020000"), min_size=1, max_size=70)
LINES = st.lists(st.lists(WORDS, min_size=1, max_size=12).map(" ".join), min_size=1, max_size=4)


def encode(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Texts as canonical text, and their bounds."""
    data = [f"{text}\n".encode() for text in texts]
    return np.frombuffer(b"".join(data), np.uint8), np.cumsum([0, *map(len, data)])


def key_of(text: str) -> int:
    return xxh3_64_intdigest(f"{text}\n".encode())


@given(st.lists(LINES.map("\n".join), min_size=1, max_size=4))
def test_shingles_are_those_of_plain_python(texts):
    shingles, offsets = hash_shingles(*encode(texts))
    wanted = [list(reference.find_shingles(text)) for text in texts]
    assert np.diff(offsets).tolist() == [len(some) for some in wanted]
    # Two are equal if and only if their words are.
    pairs = set(zip(shingles.tolist(), (shingle for some in wanted for shingle in some), strict=True))
    assert len(pairs) == len({value for value, _ in pairs}) == len({shingle for _, shingle in pairs})


# ---- signatures ----


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=11), min_size=1, max_size=5), st.randoms())
def test_a_signature_depends_on_the_set_of_shingles_alone(sets, rng):
    def sign(lists: list[list[int]]) -> list[list[int]]:
        values = np.array([value for some in lists for value in some], np.uint32)
        return make_signatures(values, np.cumsum([0, *map(len, lists)]), Bands(3, 2)).tolist()

    assert sign([rng.sample(some + some, 2 * len(some)) for some in sets]) == sign(sets)


@pytest.mark.parametrize("similarity", [0.5, 0.8])
def test_bands_find_as_many_pairs_as_the_formula_says(similarity):
    rng, num_pairs, size = np.random.default_rng(7), 3000, 400
    common = round(2 * size * similarity / (1 + similarity))
    own = size - common
    values = rng.integers(0, 2**32, (num_pairs, common + 2 * own), dtype=np.uint32)
    offsets = np.arange(num_pairs + 1) * size
    bands = choose_bands(similarity)
    first = make_signatures(values[:, :size].ravel(), offsets, bands)
    second = make_signatures(np.delete(values, np.s_[:own], axis=1)[:, -size:].ravel(), offsets, bands)
    share = (first == second).any(axis=1).mean()
    agree = (first == second).mean()
    exact = common / (size + own)
    assert agree == pytest.approx(exact**bands.num_rows, abs=4 * (exact**bands.num_rows / num_pairs) ** 0.5)
    assert share >= 0.98


# ---- sorting on the disk ----

ROWS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2**64 - 1)), max_size=40)


@given(files=st.lists(ROWS, max_size=5), rows_at_once=st.integers(1, 100))
def test_merged_files_give_all_rows_sorted_and_divide_no_equal_ones(files, rows_at_once, tmp_path_factory):
    folder = tmp_path_factory.mktemp("columns")
    written = [
        write_columns(folder, str(number), np.array(rows, np.uint64).reshape(-1, 2).T)
        for number, rows in enumerate(files)
    ]
    blocks = [block.T.tolist() for block in merge_columns(folder, written, rows_at_once)]
    rows = [row for file in files for row in sorted(file)]
    assert [row for block in blocks for row in block] == sorted([*row, number] for number, row in enumerate(rows))
    firsts = [{row[0] for row in block} for block in blocks]
    assert sum(map(len, firsts)) == len(set().union(*firsts))


def test_a_merge_holds_about_as_many_rows_as_is_asked_and_tells_of_a_file_that_is_cut_short(tmp_path):
    rng = np.random.default_rng(1)
    files = [write_columns(tmp_path, str(i), rng.integers(0, 2**64, (2, 50), dtype=np.uint64)) for i in range(40)]
    assert max(block.shape[1] for block in merge_columns(tmp_path, files, 200)) < 500
    (tmp_path / "0").write_bytes(bytes(40))
    with pytest.raises(OutputError, match="cut short"):
        list(merge_columns(tmp_path, files[:1]))


# ---- who stays ----


def compare(sets: list[list[int]], buckets: list[list[int]], similarity: float, batch: int) -> list[int]:
    """For each document the number of the one to which it is similar, or -1; they come in batches."""
    state = Buckets.empty(0, 8, sum(map(len, buckets)))
    old, found = np.zeros(0, np.uint32), list[int]()
    for begin in range(0, len(sets), batch):
        some, mine = sets[begin : begin + batch], buckets[begin : begin + batch]
        flat = np.array([value for one in some for value in one], np.uint32)
        some_documents = BucketedDocuments(
            np.arange(begin, begin + len(some), dtype=np.uint64),
            np.zeros(len(some), np.int64),
            np.cumsum([0, *map(len, mine)]),
            np.array([number for one in mine for number in one], np.int64),
            np.cumsum([0, *map(len, some)]),
            flat,
        )
        new = np.empty(len(flat), np.uint32)
        similar_to, _, num_new = choose_staying(some_documents, state, similarity, old, new)
        old = np.concatenate([old, new[:num_new]])
        found += [number if number < 0 else int(state.documents[number, 0]) for number in similar_to.tolist()]
    return found


def compare_slowly(sets: list[list[int]], buckets: list[list[int]], similarity: float) -> list[bool]:
    """Whether each stays."""
    held: dict[int, list[set[int]]] = {}
    stays = []
    for some, mine in zip(sets, buckets, strict=True):
        own = set(some)
        others = [other for number in mine for other in held.get(number, [])]
        stays.append(all(len(own & other) / len(own | other) < similarity for other in others))
        for number in mine if stays[-1] else ():
            if len(held.setdefault(number, [])) < MOST_STAYING:
                held[number].append(own)
    return stays


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 6), min_size=1, max_size=8), st.sets(st.integers(0, 7), min_size=1)),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([0.5, 0.6, 0.8, 1.0]),
    st.integers(1, 9),
)
def test_documents_are_compared_with_those_of_their_buckets_that_stayed(documents, similarity, batch):
    sets, buckets = [some for some, _ in documents], [sorted(mine) for _, mine in documents]
    found = compare(sets, buckets, similarity, batch)
    assert [number < 0 for number in found] == compare_slowly(sets, buckets, similarity)
    for some, number in zip(sets, found, strict=True):
        if number >= 0:
            assert found[number] < 0
            assert len({*some} & {*sets[number]}) / len({*some} | {*sets[number]}) >= similarity


# ---- all of it ----


def find(
    folder: Path,
    tasks: list[list[str]],
    similarity: float,
    places: list[int] | None = None,
    bands: Bands | None = None,
) -> NearDuplicates:
    """Find the near-duplicates among the texts of several tasks."""
    signed = []
    for number, texts in enumerate(tasks):
        with ExitStack() as files:
            place = places[number] if places else 0
            writer = PartWriter(folder, f"task-{number}", place, bands or choose_bands(similarity), files)
            for text in texts:
                utf8, bounds = encode([text])
                columns = DocumentColumns(np.array([key_of(text)], np.uint64))
                writer.add(Lines(utf8=utf8, line_offsets=bounds, document_offsets=np.arange(2), columns=columns))
            signed += writer.finish()
    return find_near_duplicates(folder, signed, similarity, folder)


def make_similar(rng: random.Random, count: int) -> list[str]:
    """Texts of 200 to 300 words, and copies of some with one word changed.

    Two copies of a text are similar by 0.9 or more, so that a pair is missed once in a million. Of pairs that are just
    as similar as is asked 1 in 200 is.
    """
    texts = []
    for _ in range(count):
        words = [f"w{rng.randrange(10_000)}" for _ in range(rng.randint(200, 300))]
        texts.append(" ".join(words))
        for _ in range(rng.choice([0, 0, 1, 3])):
            copy = list(words)
            copy[rng.randrange(len(copy))] = "changed"
            texts.append(" ".join(copy))
    return texts


def read_dropped(folder: Path, found: NearDuplicates) -> set[int]:
    return set(np.fromfile(folder / found.file, np.uint64).tolist()) if found.file else set()


def rank(texts: set[str]) -> list[str]:
    return sorted(texts, key=lambda text: (-len(text.encode()), key_of(text)))


@given(seed=st.integers(0, 2**32), num_tasks=st.integers(1, 4), small=st.booleans())
def test_of_similar_documents_the_longest_stays_in_any_layout(seed, num_tasks, small, tmp_path_factory):
    rng = random.Random(seed)  # hypothesis' own would choose words that make texts just as similar as is asked
    texts = make_similar(rng, 8)
    tasks = [[*texts[i::num_tasks], *rng.sample(texts, 3)] for i in range(num_tasks)]
    with pytest.MonkeyPatch.context() as patch:
        if small:  # several parts, files and batches
            patch.setattr(parts, "PART_DOCUMENTS", 5)
            patch.setattr(near_duplicates, "ROWS_AT_ONCE", 7)
            patch.setattr(near_duplicates, "_BATCH_SHINGLES", 300)
            patch.setattr(sorted_columns, "_SAMPLES", 7)
        folder = tmp_path_factory.mktemp("near")
        found = find(folder, tasks, 0.8)
    staying = reference.find_staying(rank(set(texts)), 0.8)
    dropped = {key_of(text) for text, other in staying.items() if other is not None}
    assert read_dropped(folder, found) == dropped
    assert found.documents.total() == len(dropped)
    assert found.digest == sum(dropped) % 2**64
    by_key = {key_of(text): text for text in texts}
    assert [one for one, _, _ in found.pairs] == sorted(dropped)[:20]
    for one, kept, similarity in found.pairs:
        assert kept not in dropped
        assert similarity == reference.measure_similarity(by_key[one], by_key[kept]) >= 0.8


def test_the_first_source_keeps_its_documents_though_they_are_shorter(tmp_path):
    text = " ".join(f"w{i}" for i in range(80))
    found = find(tmp_path, [[f"{text} and more of it"], [text]], 0.8, places=[1, 0])
    assert read_dropped(tmp_path, found) == {key_of(f"{text} and more of it")}


def make_pages(rng: random.Random, num_template: int, num_own: int, num_pages: int, cuts: Sequence[int]) -> list[str]:
    """Pages of a template and of own words, as many shingles; and each again with so many own words less."""
    template, texts = make_words(rng, num_template + 4), []
    for _ in range(num_pages):
        own = make_words(rng, num_own)
        texts += [" ".join([*template, *own]), " ".join([*template, *own[: num_own - rng.choice(cuts)]])]
    return rng.sample(texts, len(texts))


def make_words(rng: random.Random, count: int) -> list[str]:
    return [f"{rng.getrandbits(40):x}" for _ in range(count)]


@pytest.mark.parametrize(("num_template", "similarity"), [(20, 0.8), (40, 0.85), (80, 0.9)])
def test_similar_pages_of_a_template_that_many_share_are_found(num_template, similarity, tmp_path):
    rng, most = random.Random(num_template), round(100 * (1 - similarity))
    texts = make_pages(rng, num_template, 100 - num_template, 1000, range(most - 5, most))
    found = find(tmp_path, [texts[::2], texts[1::2]], similarity)
    assert found.documents.total() >= 985  # 99.5 %, and five times in a hundred thousand fewer by chance
    assert read_dropped(tmp_path, found) <= {key_of(text) for text in texts if len(text.split()) < 104}


@given(seed=st.integers(0, 2**32), num_tasks=st.integers(1, 3), similarity=st.sampled_from([0.5, 0.7, 0.8, 0.9, 1.0]))
def test_pages_of_a_template_that_are_not_named_as_partly_compared_are_all_found(
    seed, num_tasks, similarity, tmp_path_factory
):
    rng, folder = random.Random(seed), tmp_path_factory.mktemp("near")
    texts = [text for _ in range(2) for text in make_pages(rng, rng.randint(1, 40), rng.randint(1, 40), 12, range(2))]
    texts += [" ".join(make_words(rng, 9)[:1] * 3), texts[0] + " " + texts[1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART_DOCUMENTS", rng.choice([5, 1000]))
        patch.setattr(near_duplicates, "ROWS_AT_ONCE", rng.choice([7, 10_000]))
        tasks = [[*texts[i::num_tasks], *rng.sample(texts, 3)] for i in range(num_tasks)]
        found = find(folder, tasks, similarity, bands=Bands(60, 1))  # all pairs share a bucket, mostly a full one
        again = find(folder, [texts[::-1]], similarity, bands=Bands(60, 1))
    staying = reference.find_staying(rank(set(texts)), similarity)
    wanted = {key_of(text) for text, other in staying.items() if other is not None}
    assert len(wanted - read_dropped(folder, found)) <= found.num_partly_compared
    assert found.num_partly_compared or read_dropped(folder, found) == wanted
    for name in ("digest", "pairs", "num_partly_compared"):
        assert getattr(found, name) == getattr(again, name)


@pytest.mark.parametrize("num_texts", [1, 3000], ids=["copies", "of one template"])
def test_very_many_documents_of_one_bucket_take_no_more_memory_or_comparisons(num_texts, tmp_path, monkeypatch):
    for module, name in ((parts, "PART_DOCUMENTS"), (near_duplicates, "ROWS_AT_ONCE")):
        monkeypatch.setattr(module, name, 100)
    held, sort, compared = list[int](), sorted_columns.sort_columns, list[Buckets]()
    monkeypatch.setattr(
        sorted_columns, "sort_columns", lambda rows, **how: held.append(rows.shape[1]) or sort(rows, **how)
    )
    monkeypatch.setattr(
        near_duplicates, "choose_staying", lambda *some: compared.append(some[1]) or choose_staying(*some)
    )
    monkeypatch.setattr(merge_columns, "__defaults__", (100, None))
    template = " ".join(f"w{i}" for i in range(10))
    tasks = [[f"{template} {i % num_texts}" for i in range(3000)], [f"{template} and more"]]
    find(tmp_path, tasks, 0.8, bands=Bands(2, 1))
    assert max(held) <= 500
    assert max((buckets.sizes.max() for buckets in compared), default=0) <= MOST_STAYING
