"""Builds from and into a store, and what reads shards there: the same bytes as on the disk, whatever fails."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import build_fixtures as fixtures
import numpy as np
import pytest
from build_fixtures import Corpus, InterruptedEngine
from memory_store import Died
from refusals import check_refused
from store_fixtures import SECRET, Bucket, times

from albert_data.cli.main import run
from albert_data.errors import OutputError, ShardError, StorageError
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.pipeline.build import BuildReport
from albert_data.pipeline.estimate import BuildEstimate, count_requests
from albert_data.pipeline.shard_plan import SHARD_BYTES
from albert_data.shards.reader import open_shards
from albert_data.storage import make_path, retries

pytestmark = pytest.mark.slow
in_memory = pytest.mark.parametrize("bucket", ["memory"], indirect=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(retries, "_FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, seconds in (("EXPIRY_SECONDS", 1.5), ("RENEW_SECONDS", 0.2), ("_POLL_SECONDS", 0.1)):
        monkeypatch.setattr(f"albert_data.storage.locks.{name}", seconds)


def build(stored: Bucket, corpus: Corpus, engine: Any = None, **settings: Any) -> BuildReport:
    out = make_path(f"{stored.url}/out")
    settings = {"num_shards": fixtures.CORPUS_SHARDS, **settings}
    return fixtures.run_build(f"{stored.url}/in", out, corpus.tokenizer, engine, **settings)


def check(stored: Bucket, corpus: Corpus) -> None:
    """OUT has exactly the files of the build on the disk. The manifests name other inputs."""
    found = {name: sha256(data).hexdigest() for name, data in stored.files("out/").items()}
    assert found.keys() == corpus.files.keys()
    assert {name for name in found if found[name] != corpus.files[name]} == {"manifest.json"}
    assert stored.uploads() == []


FAULTS = {3: "503", 7: "reset", 11: "cut", 13: "late reset", 17: "500 InternalError"}


@pytest.mark.parametrize("faults", [{}, FAULTS], ids=["two workers", "faults"])
def test_a_build_from_and_into_a_store_makes_the_same_bytes(faults, stored, corpus, store_server):
    number = count()
    with store_server.failing(lambda environ: faults.get(next(number) % 19)):
        build(stored, corpus, None if faults else MultiprocessEngine(2))
    check(stored, corpus)
    assert build(stored, corpus).was_finished


@pytest.mark.quick
@in_memory
def test_an_interrupted_build_resumes_even_on_another_machine(stored, corpus, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        build(stored, corpus, InterruptedEngine(fixtures.CORPUS_TASKS + 1))
    monkeypatch.setattr("albert_data.pipeline.build_folder._boot_id", lambda: "another machine")
    assert build(stored, corpus).resumed_tasks == fixtures.CORPUS_TASKS
    check(stored, corpus)


def test_to_resume_and_to_publish_listings_are_read_instead_of_each_file(stored, corpus):
    class Spanning(InterruptedEngine):
        spans_machines = True

    with pytest.raises(KeyboardInterrupt):
        build(stored, corpus, Spanning(5))
    asked = Counter[str]()

    def note(environ: dict[str, Any]) -> None:
        asked[f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"] += 1

    with stored.server.failing(note):
        build(stored, corpus, Spanning(1000))
    check(stored, corpus)
    assert not [name for name in asked if name.startswith("HEAD") and name.endswith(".run")]
    deleted = [name.rpartition("out/")[2] for name in asked if name.startswith("DELETE")]
    assert [name.rpartition("/")[0] for name in sorted(deleted)] == [".build", ".build/manifests"]


# The last changes: the shards, publishing, cleaning up. What was begun is resumed; or another build replaces it, and
# the one that was meant replaces that.
@in_memory
@pytest.mark.parametrize(
    "from_end", [pytest.param(at, marks=pytest.mark.quick if at % 12 == 1 else ()) for at in range(1, 75, 4)]
)
def test_a_build_that_dies_at_a_change_is_resumed_or_replaced(from_end, stored, corpus):
    requests = stored.requests
    changes = requests.count_changes(lambda: build(stored, corpus, seed=5))
    for replaces in (False, True):
        build(stored, corpus, seed=5, overwrite=True)
        requests.changes_left = changes - from_end
        with pytest.raises(Died):
            build(stored, corpus, overwrite=True)
        requests.changes_left = 1 << 30
        is_older = b'"seed": 5' in stored.files("out/").get("manifest.json", b"")
        if replaces:
            build(stored, corpus, seed=6, overwrite=True)
        build(stored, corpus, overwrite=is_older or replaces)
        check(stored, corpus)


@in_memory
@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.quick), *range(1, 12)])
def test_a_shuffle_in_two_stages_that_dies_at_any_change_resumes_to_the_same_bytes(number, stored, corpus, monkeypatch):
    fixtures.shape_shuffle(monkeypatch, "two stages")
    requests, rng, engine = stored.requests, random.Random(number), fixtures.SpanningEngine()
    changes, others = requests.count_changes(lambda: build(stored, corpus, engine)), list(stored.files("out/"))
    check(stored, corpus)
    for name in others:
        stored.delete(f"out/{name}")
    for _ in range(3):  # before the shuffle, in it, or while shards are published
        requests.changes_left = rng.randrange(5, changes // 4)
        with pytest.raises(Died):
            build(stored, corpus, engine)
    requests.changes_left = 1 << 30
    build(stored, corpus, engine)
    check(stored, corpus)


@in_memory
def test_what_no_build_wrote_stays(stored, corpus):
    mine = {"train/shard-00009.arrow": b"mine", "notes.txt": b"mine too"}
    for name, data in mine.items():
        stored.put(f"out/{name}", data)
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="out holds notes.txt and 1 more, but no build; name a new"):
            build(stored, corpus, overwrite=overwrite)
    assert stored.files("out/") == mine
    for name in mine:
        stored.delete(f"out/{name}")
    build(stored, corpus)
    for name, data in mine.items():
        stored.put(f"out/{name}", data)
    with pytest.raises(OutputError, match="shard-00009.arrow was not written by a build"):
        build(stored, corpus, seed=5, overwrite=True)
    assert stored.files("out/").keys() == {*corpus.files, *mine}


# ---- commands ----


@pytest.fixture
def vocab(tokenizer_model: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "spiece.model"
    path.write_bytes(tokenizer_model)
    return path


@pytest.fixture
def shards(stored: Bucket, corpus: Corpus) -> str:
    """The finished build, put there by another library."""
    for name in corpus.files:
        stored.put(f"shards/{name}", (corpus.path.parent / "reference" / name).read_bytes())
    return f"{stored.url}/shards"


def test_commands_read_and_write_a_store(shards, stored, corpus, vocab, tmp_path, capsys):
    reference = corpus.path.parent / "reference"
    for command in (["verify"], ["inspect", "--json"], ["audit", "--json"]):
        outputs = []
        for place in (shards, str(reference)):
            assert run([command[0], place, *command[1:]]) in (0, 1)
            outputs.append(capsys.readouterr().out.replace(place, "SHARDS"))
        assert outputs[0] == outputs[1]
    for place, out in ((shards, f"{stored.url}/mds"), (str(reference), str(tmp_path / "mds"))):
        assert run(["convert", place, "-o", out, "--to", "mds"]) == 0
    on_disk = {
        str(path.relative_to(tmp_path / "mds")): path for path in (tmp_path / "mds").rglob("*") if path.is_file()
    }
    assert stored.files("mds/") == {name: path.read_bytes() for name, path in on_disk.items()}
    assert run(["build", f"{stored.url}/in/*.txt", "-o", f"{stored.url}/few", "--tokenizer", str(vocab)]) == 0
    assert run(["verify", f"{stored.url}/few"]) == 0
    assert run(["inspect", shards, "--html", str(tmp_path / "report.html")]) == 0
    assert run(["audit", shards, "--corpus", f"{stored.url}/in"]) == 0


def test_a_list_and_a_mixture_may_name_objects_and_lie_in_a_store(stored, corpus, vocab, tmp_path):
    stored.put("lists/files.txt", f"{stored.url}/in/a.txt\n".encode())
    (tmp_path / "files.txt").write_text(f"{stored.url}/in/a.txt\n")
    stored.put("mix/mix.toml", f'[[source]]\nname = "one"\npaths = ["more.txt", "{stored.url}/in/a.txt"]\n'.encode())
    stored.put("mix/more.txt", b"One sentence. Another sentence.\n")
    for number, name in enumerate(
        (f"@{stored.url}/lists/files.txt", f"@{tmp_path}/files.txt", f"{stored.url}/mix/mix.toml")
    ):
        out = tmp_path / str(number)
        assert run(["build", name, "-o", str(out), "--tokenizer", str(vocab)]) == 0
    digests = [open_shards(tmp_path / name).manifest.digest for name in ("0", "1")]
    assert digests[0] == digests[1]


def test_no_secret_is_written_or_told(stored, corpus, vocab, capfd, store_server):
    arguments = ["build", f"{stored.url}/in", "-o", f"{stored.url}/out", "--tokenizer", str(vocab)]
    assert run(arguments) == 0
    with store_server.failing(times(1 << 20, "403 SignatureDoesNotMatch")):
        assert run(arguments) == 1
    told = capfd.readouterr()
    for data in (*stored.files().values(), told.out.encode(), told.err.encode()):
        for secret in (SECRET, "AWS4-HMAC", "X-Amz-", store_server.url):
            assert secret.encode() not in data


@pytest.mark.parametrize(
    ("where", "fault", "method", "message"),
    [
        ("input", None, "", "bucket s3://none does not exist; check its name and the address of the store"),
        ("output", None, "", "bucket s3://none does not exist; check its name and the address of the store"),
        ("input", "403 AccessDenied", "", "the store does not permit that (403)"),
        ("output", "403 AccessDenied", "PUT", "the store does not permit that (AccessDenied)"),
        ("output", "301 PermanentRedirect", "", "lies in the region eu-west-1; set AWS_REGION"),
    ],
)
def test_a_bucket_that_can_not_be_used_is_told_in_one_line_before_any_work(
    where, fault, method, message, stored, vocab, tmp_path, capsys, monkeypatch
):
    (tmp_path / "in.txt").write_text("One sentence.\n\nAnother one.\n")
    name = f"{stored.url}/x" if fault else "s3://none/x"
    names = {"input": str(tmp_path / "in.txt"), "output": str(tmp_path / "out"), where: name}
    monkeypatch.setattr("albert_data.pipeline.steps.compile_with_notice", Mock(side_effect=AssertionError("work")))
    with stored.server.failing(*([times(1 << 20, fault, method=method)] if fault else [])):
        assert run(["build", names["input"], "-o", names["output"], "--tokenizer", str(vocab)]) == 1
    told = capsys.readouterr().err
    assert message in told
    assert (told.startswith("Error: "), told.count("\n")) == (True, 1)
    assert not (tmp_path / "out").exists()
    assert not any(name.startswith("x") for name in stored.files())


# ---- training ----


def test_the_batches_from_a_store_are_those_from_the_disk_even_with_an_outage(shards, corpus, store_server):
    loader = pytest.importorskip("albert_data.train.loader")
    reference = corpus.path.parent / "reference"
    with store_server.failing(times(5, "503"), times(4, "cut"), times(3, "reset")):
        there = loader.ShardLoader(shards, batch_tokens=512)
        here = loader.ShardLoader(reference, batch_tokens=512)
        count = 0
        for one, other in zip(there, here, strict=True):
            assert np.array_equal(one.input_ids_BT, other.input_ids_BT)
            count += 1
    assert count > 3


def test_rows_are_those_of_the_disk_if_copies_of_all_shards_fit(shards, corpus, monkeypatch, tmp_path):
    there, here = open_shards(shards), open_shards(corpus.path.parent / "reference")
    assert np.array_equal(there.lengths, here.lengths)
    numbers = np.random.default_rng(0).integers(len(here), size=len(here))
    one, other = there.rows(numbers), here.rows(numbers)
    for name in vars(other):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert pickle.loads(pickle.dumps(there))[-1].document_key == here[-1].document_key
    monkeypatch.setattr("albert_data.storage.cache.MOST_BYTES", 60_000)
    check_refused(lambda: open_shards(shards), ShardError, "copies may take 60,000 here & copy it to a larger disk")
    assert run(["verify", shards]) == 0


def test_damaged_shards_and_places_for_copies_or_runs_are_told(shards, stored, monkeypatch, capsys):
    assert run(["train", shards]) == 2
    told = capsys.readouterr().err
    assert f"{shards} is in a store, and a run has to be on a disk; name a folder with --output" in told
    with monkeypatch.context() as homeless:
        homeless.delenv("XDG_CACHE_HOME")
        homeless.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
        check_refused(lambda: open_shards(shards), StorageError, "no home & set XDG_CACHE_HOME")
    stored.put("shards/train/shard-00000.arrow", bytes(len(stored.files("shards/train/shard-00000.arrow")[""])))
    check_refused(lambda: open_shards(shards), ShardError, "not those of the manifest's SHA-256 & run")


@in_memory
def test_requests_grow_as_an_estimate_says(stored, corpus, monkeypatch):
    """What each build asks once (plan, manifest, listings) is not in it, so two builds are compared."""
    asked, kind = Counter[str](), type(stored.requests)
    for name in ("get", "put", "delete", "copy"):
        method = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *given, _of=method, _name=name: asked.update([_name]) or _of(*given))
    found, estimates = [], []
    for num_shards in (2, 40):
        asked.clear()
        build(stored, corpus, num_shards=num_shards, overwrite=True)
        found.append(asked.total() - 2 * asked["copy"])  # here a copy is a get and a put
        sizes = dict.fromkeys(("sample_bytes", "documents", "text_bytes", "tokens", "rows", "work_bytes"), 0)
        estimated = BuildEstimate(**sizes, shard_bytes=num_shards * SHARD_BYTES)
        estimates.append(count_requests(estimated, [], fixtures.CORPUS_TASKS, make_path(f"{stored.url}/out")))
    assert found[1] - found[0] == pytest.approx(estimates[1] - estimates[0], rel=0.3)
