"""What all tests share: a tiny tokenizer, a cache folder, and hypothesis without deadlines and with fixed seeds."""

from __future__ import annotations

import os

# Before NumPy and torch are loaded, for them and for other processes: toys are too small for two threads, and several
# tests run at once.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks the Hugging Face Hub; those of it have an imitation

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
from build_fixtures import CORPUS_TASK_BYTES, Corpus, digest_folder, make_documents, small_tasks
from hypothesis import HealthCheck, settings
from toy_language import make_sentences, train_model
from watcher import start_watcher

from albert_data.storage.files import find_cache_folder
from albert_data.tokenizer.model import Tokenizer

# The first example of a test may compile kernels. Seeds are fixed, so that all see the same verdict; but hypothesis
# also draws numbers and strings that it finds in those modules of the package that are loaded. `make test-all` asks for
# the thorough profile, and before a release for the last.
for name, num_examples in (("release", 100), ("thorough", 40), ("fast", 15)):
    health_checks = [HealthCheck.too_slow]
    settings.register_profile(
        name, deadline=None, derandomize=True, max_examples=num_examples, suppress_health_check=health_checks
    )
    settings.load_profile(name)


# The files that take longest, 15 to 60 s each. They begin first, so that at the end no worker is left with one.
LONGEST = (
    "test_build_publishing",
    "test_build_resume",
    "test_ray_engine",
    "test_docs",
    "test_quickstart",
    "test_store_builds",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write the golden files anew: `make docs` does")


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # of xdist, from 3.8 on; otherwise files with most tests come first
    if hasattr(config, "workerinput") or config.option.basetemp:  # of xdist; of the user
        return
    # The folder of all tmp_paths. Name one with --basetemp to look at what a test left.
    folder = Path(tempfile.mkdtemp(prefix="albert-data-tests-"))
    config.option.basetemp = folder
    watcher = start_watcher(folder)

    def end() -> None:
        if watcher is not None:
            watcher.kill()
            watcher.wait()
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(end)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONGEST)
    if config.getoption("--write-golden"):
        items[:] = [item for item in items if "golden" in getattr(item, "fixturenames", ())]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): the text is that of tests/golden/name, or becomes it with --write-golden.

    For what is shown to people: pages, cards, tables of the terminal. `git diff` then shows what a change does to them.
    """

    def check(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if request.config.getoption("--write-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8"), f"{path} differs; if the change is meant, `make docs` writes it anew"

    return check


# A shell lets what it starts in the background ignore Ctrl-C, and so would all that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where commands keep what they cache while tests run, in other processes too: not with the user's own.

    Compiled kernels stay where they are: compiling them takes half a minute. Other processes import the package of this
    checkout from any folder, whichever is installed.
    """
    folder = tmp_path_factory.mktemp("cache")
    kernels = os.environ.get("NUMBA_CACHE_DIR") or str(find_cache_folder("kernels"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("NUMBA_CACHE_DIR", kernels)
        monkeypatch.setattr(numba.config, "CACHE_DIR", kernels)  # Numba read the variable when it was imported
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent), prepend=os.pathsep)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def no_syncing() -> Iterator[None]:
    """Skip fsync: no test cuts the power, and a small build spends most of its time waiting for the disk."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def here(tmp_path: Path, tokenizer_model: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: corpus.txt and a tokenizer's model.model."""
    (tmp_path / "corpus.txt").write_text("\n\n".join(make_documents(60, seed=6)))
    (tmp_path / "model.model").write_bytes(tokenizer_model)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Any]:
    """A `store_fixtures.Server`: an S3 of this machine."""
    from store_fixtures import serve_s3

    yield from serve_s3()


@pytest.fixture(params=["s3"])
def bucket(request: pytest.FixtureRequest) -> Any:
    """A new bucket in a store; in S3 unless a test names another."""
    from store_fixtures import make_bucket

    return make_bucket(request, request.param)


@pytest.fixture
def stored(corpus: Corpus, bucket: Any) -> Any:
    """The corpus, in a bucket."""
    for path in corpus.path.rglob("*"):
        if path.is_file():
            bucket.put(f"in/{path.relative_to(corpus.path)}", path.read_bytes())
    return bucket


@pytest.fixture
def store_server(bucket: Any) -> Any:
    """The server of the bucket."""
    return bucket.server


@pytest.fixture(scope="session")
def tokenizer_model() -> bytes:
    """The bytes of a SentencePiece model: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4."""
    return train_model()


@pytest.fixture(scope="session")
def tokenizer(tokenizer_model: bytes) -> Tokenizer:
    return Tokenizer(tokenizer_model, "the tests' tokenizer")


@pytest.fixture(scope="session")
def built_corpus(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    with small_tasks(CORPUS_TASK_BYTES):
        return Corpus(tmp_path_factory.mktemp("corpus"), tokenizer)


@pytest.fixture(scope="module")
def corpus(built_corpus: Corpus) -> Iterator[Corpus]:
    """A corpus whose builds have many tasks, as all builds of the module have from then on."""
    with small_tasks(CORPUS_TASK_BYTES):
        yield built_corpus


@pytest.fixture(scope="session")
def finished(built_corpus: Corpus) -> Iterator[Path]:
    """The folder of a finished build, to be read only: 120 documents, three shards, and validation."""
    folder = built_corpus.path.with_name("reference")
    yield folder
    assert digest_folder(folder) == built_corpus.files, "a test changed the build that all share"


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Made-up English and Chinese sentences that the tokenizer was not trained on."""
    return list(make_sentences(300, seed=1))
