"""`--exclude` skips paths, `--min-chars` leaves out short documents, and `--sample` uses a share: the rest is read as
if it were all, and what is gone is counted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
import references
from build_fixtures import InlineEngine, digest_shards, document_key, keys_of, make_documents, run_build
from corpus_fixtures import any_bytes, read
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import Mixed, build_mixture, write_mixture
from refusals import check_refused, refused
from store_fixtures import make_bucket

from albert_data.config import BuildConfig, TextConfig
from albert_data.corpus.inputs import find_inputs, list_unmatched
from albert_data.corpus.mixtures import find_sources
from albert_data.errors import ConfigError, InputError
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.kernels.draws import SAMPLING
from albert_data.pipeline.build import build_shards

# ---- exclude ----

PATHS = [
    "a.txt",
    "b.txt",
    "notes.md.txt",
    "drafts/a.txt",
    "drafts/old/c.txt",
    "deep/drafts/d.txt",
    "x[1]/a.txt",
    "x1/a.txt",
]


def write_paths(folder: Path, paths: Sequence[str] = PATHS) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"Text of {path}.")
    return folder


def find(name: str, exclude: str) -> list[str]:
    return [item.path for item in find_inputs([name], text=TextConfig(exclude=exclude))]


@pytest.mark.parametrize(
    ("exclude", "left"),
    {
        "*.md.txt": "a.txt b.txt drafts/a.txt drafts/old/c.txt deep/drafts/d.txt x[1]/a.txt x1/a.txt",
        "drafts/": "a.txt b.txt notes.md.txt x[1]/a.txt x1/a.txt",
        "drafts": "a.txt b.txt notes.md.txt x[1]/a.txt x1/a.txt",
        "drafts/old": "a.txt b.txt notes.md.txt drafts/a.txt deep/drafts/d.txt x[1]/a.txt x1/a.txt",
        "drafts/*.txt": "a.txt b.txt notes.md.txt deep/drafts/d.txt x[1]/a.txt x1/a.txt",
        "a.txt/": " ".join(PATHS),
        "a.txt,x?/": "b.txt notes.md.txt drafts/old/c.txt deep/drafts/d.txt",
        "A.TXT": " ".join(PATHS),
    }.items(),
)
def test_patterns_are_compared_with_names_and_with_paths_in_the_folder(exclude, left, tmp_path):
    write_paths(tmp_path / "drafts")  # the folder itself is named, and stays
    wanted = sorted(str(tmp_path / "drafts" / path) for path in left.split())
    assert find(str(tmp_path / "drafts"), exclude) == wanted
    glob = f"{tmp_path}/drafts/**/*.txt"
    assert find(glob, exclude) == wanted
    (tmp_path / "drafts" / "list").write_text("\n".join(PATHS))
    assert find(f"@{tmp_path}/drafts/list", exclude) == wanted


def test_a_file_that_is_named_stays_and_an_excluded_folder_is_not_opened(tmp_path):
    write_paths(tmp_path)
    assert find(str(tmp_path / "a.txt"), "a.txt") == [str(tmp_path / "a.txt")]
    (tmp_path / "drafts").chmod(0)
    try:
        said: list[str] = []
        items = find_inputs([str(tmp_path)], said.append, TextConfig(exclude="drafts,*.bak"))
    finally:
        (tmp_path / "drafts").chmod(0o700)
    folders = [str(tmp_path / "deep/drafts"), str(tmp_path / "drafts")]
    assert sorted(items[0].skipped["--exclude drafts"]) == folders
    assert said == [f"skipped files and folders by --exclude drafts (2): {', '.join(reversed(folders))}"]
    (line,) = list_unmatched(items, TextConfig(exclude="drafts,*.bak"))
    assert line.startswith("--exclude *.bak matches no file or folder")


@refused(
    (("", "*"), InputError, "--exclude leaves out all files of & /in"),
    (("/*.txt", "*.txt"), InputError, "--exclude leaves out all files of & /in/*.txt"),
    (("", "*.txt,x?/,drafts/"), InputError, "--exclude leaves out all files of & /in"),
    (("", "a,,b"), ConfigError, "exclude is 'a,,b' & globs & commas"),
    (("", "/"), ConfigError, "exclude is '/'"),
)
def test_patterns_that_leave_nothing_are_refused(call, kind, named, tmp_path):
    write_paths(tmp_path / "in", [path for path in PATHS if "[" not in path])
    check_refused(lambda: find(f"{tmp_path}/in{call[0]}", call[1]), kind, named)


def test_validation_that_is_all_excluded_is_an_error_too(tmp_path):
    write_paths(tmp_path / "in")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "z.txt").write_text("One.")
    with pytest.raises(InputError, match=r"--exclude leaves out all files of .*/dev"):
        find_inputs([str(tmp_path / "in")], text=TextConfig(exclude="z.txt"), validation=[str(tmp_path / "dev")])


def test_paths_in_a_store_are_excluded_as_on_the_disk(request, tmp_path):
    bucket = make_bucket(request, "memory")
    for path in PATHS:
        bucket.put(f"in/{path}", b"One.")
    for exclude in ("drafts/", "drafts/*.txt", "*.md.txt,x?"):
        write_paths(tmp_path / "in")
        on_disk = [path.removeprefix(str(tmp_path)) for path in find(str(tmp_path / "in"), exclude)]
        assert [path.removeprefix(bucket.url) for path in find(f"{bucket.url}/in", exclude)] == on_disk


def test_a_build_without_excluded_files_has_the_shards_of_the_rest_and_names_what_it_skipped(tmp_path, tokenizer):
    documents = make_documents(60, 1)
    for name, some in {"a": documents[:40], "bad/b": documents[40:], "only": documents[:40]}.items():
        path = tmp_path / ("only" if name == "only" else "in") / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fixtures.to_txt(some))
    report = run_build(tmp_path / "in", tmp_path / "out", tokenizer, exclude="bad/")
    run_build(tmp_path / "only", tmp_path / "wanted", tokenizer)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "wanted")
    skipped = (report.manifest.skipped or {})["--exclude bad/"]
    assert (skipped.num_paths, skipped.paths) == (1, (str(tmp_path / "in" / "bad"),))
    assert report.manifest.config.text.exclude == report.manifest.plan.config["exclude"] == "bad/"
    assert run_build(tmp_path / "in", tmp_path / "out", tokenizer, exclude="bad/").was_finished


def test_a_source_of_a_mixture_excludes_for_itself(tmp_path):
    write_paths(tmp_path / "in")
    table = '[[source]]\nname = "{0}"\npaths = "in"\nexclude = "{1}"\n'
    (tmp_path / "mix.toml").write_text(table.format("a", "drafts/,*.bak") + table.format("b", "*.md.txt"))
    found = find_sources(str(tmp_path / "mix.toml"))
    counts = [sum(item.source.name == name for item in found if item.source) for name in "ab"]
    assert counts == [5, 7]
    assert [line.split(" matches")[0] for line in list_unmatched(found, TextConfig())] == ["--exclude *.bak"]


# ---- min-chars ----


@given(any_bytes, st.integers(1, 12), st.booleans())
def test_documents_of_fewer_characters_are_left_out_and_counted(data, least, is_json):
    text = TextConfig(min_chars=least, strict=False)
    whole, _ = read(data)
    kept = [one for one in whole if len(one.decode()) - 1 >= least]
    found, counts = read(data, config=text)
    assert found == kept
    assert counts["too_short"] == len(whole) - len(kept)


def test_a_build_has_the_rows_of_the_longer_documents_alone(tmp_path, tokenizer):
    documents = [*make_documents(80, 2), "Short.", "Kürzer."]
    least = sorted(len(references.canonical(one).decode()) - 1 for one in documents)[30]
    longer = [one for one in documents if len(fixtures.canonical(one).decode()) - 1 >= least]
    fixtures.build_documents(longer, tmp_path / "wanted", tokenizer)
    report = fixtures.build_documents(documents, tmp_path / "out", tokenizer, MultiprocessEngine(2), min_chars=least)
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "wanted")
    assert report.manifest.damage == {"too_short": len(documents) - len(longer)}
    assert f"left out   too_short {len(documents) - len(longer)}: documents of fewer" in "\n".join(report.list_notes())


def test_short_texts_of_a_benchmark_still_keep_others_out(tmp_path, tokenizer):
    secret = "one two three four five six seven eight nine ten eleven twelve thirteen."
    documents = make_documents(30, 3)
    sources = [Mixed(documents=[*documents, f"{secret} {documents[0]}"]), Mixed(documents=[secret], weight=0)]
    path = write_mixture(tmp_path, sources)
    report = build_mixture(path, tmp_path / "out", tokenizer, min_chars=90, sample=0.999)
    assert report.manifest.counts.contaminated_documents == 1


# ---- sample ----


def draws(document: str, share: float, seed: int = 0) -> bool:
    return references.stream(seed, SAMPLING, document_key(document), 0, 0) < references.threshold(share)


@pytest.mark.parametrize("seed", [0, 7])
def test_a_sample_is_the_documents_whose_keys_draw_below_it(seed, tmp_path, tokenizer):
    documents = make_documents(300, 4)
    kept = [one for one in documents if draws(one, 0.3, seed)]
    fixtures.build_documents(kept, tmp_path / "wanted", tokenizer, seed=seed)
    twice = [*documents, *documents[:50]]  # copies draw alike
    random.Random(1).shuffle(twice)
    settings: dict[str, Any] = {"sample": 0.3, "seed": seed}
    one = fixtures.build_documents(twice, tmp_path / "one", tokenizer, layout="jsonl", **settings)
    fixtures.build_documents(documents, tmp_path / "two", tokenizer, MultiprocessEngine(2), **settings)
    assert digest_shards(tmp_path / "one") == digest_shards(tmp_path / "two") == digest_shards(tmp_path / "wanted")
    num_out = sum(not draws(document, 0.3, seed) for document in twice)
    assert one.manifest.damage == {"outside_sample": num_out}
    assert one.manifest.config.sample == 0.3
    assert 0.2 < len(kept) / 300 < 0.4


def test_a_smaller_sample_is_part_of_a_larger_one_and_all_is_all(tmp_path, tokenizer):
    documents = make_documents(200, 5)
    found = []
    for number, share in enumerate((0.1, 0.5, 1.0, None)):
        fixtures.build_documents(documents, tmp_path / str(number), tokenizer, sample=share)
        train, validation = keys_of(tmp_path / str(number))
        found.append(train | validation)
    assert found[0] < found[1] < found[2] == found[3]
    assert digest_shards(tmp_path / "2") == digest_shards(tmp_path / "3")


def test_inputs_for_validation_are_not_sampled(tmp_path, tokenizer):
    documents = make_documents(100, 6)
    for name, some in (("in", documents[:60]), ("dev", documents[60:])):
        (tmp_path / f"{name}.txt").write_bytes(fixtures.to_txt(some))
    inputs = find_inputs([str(tmp_path / "in.txt")], validation=[str(tmp_path / "dev.txt")])
    config = replace(fixtures.make_config(sample=0.5), validation_fraction=0.0)
    build_shards(inputs, tmp_path / "out", tokenizer, config, InlineEngine())
    train, validation = keys_of(tmp_path / "out")
    assert validation == {document_key(one) for one in documents[60:]}
    assert train == {document_key(one) for one in documents[:60] if draws(one, 0.5)}


@refused(
    *((share, ConfigError, f"sample is {share} & above 0") for share in (0, -0.5, 1.5, float("nan"))),
)
def test_a_share_that_is_none_is_refused(call, kind, named):
    check_refused(lambda: BuildConfig(sample=call), kind, named)


@refused(
    ({"min_chars": 10**6}, InputError, "no document (60 too short) & --min-chars"),
    ({"sample": 1e-9}, InputError, "no document (60 outside sample) & --sample"),
)
def test_a_build_of_which_nothing_is_left_says_which_option_it_was(call, kind, named, tmp_path, tokenizer):
    check_refused(
        lambda: fixtures.build_documents(make_documents(60, 1), tmp_path / "out", tokenizer, **call), kind, named
    )
