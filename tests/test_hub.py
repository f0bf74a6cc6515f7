"""Names on the Hugging Face Hub are files of one commit, from then on like others. The Hub is an imitation of it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from build_fixtures import InterruptedEngine, digest_shards, make_documents
from hub_server import Hub
from refusals import check_refused

from albert_data import AlbertDataError, build, load_tokenizer
from albert_data.cli.main import run
from albert_data.corpus.inputs import find_inputs
from albert_data.errors import StorageError
from albert_data.shards.manifest_file import read_manifest
from albert_data.storage.hub import MODEL_FILES, find_files, find_model, is_model

huggingface_hub = pytest.importorskip("huggingface_hub", reason="the hub extra is not installed")
from huggingface_hub import constants  # noqa: E402

pytestmark = pytest.mark.slow
TEXTS, TINY = "hf://datasets/me/texts", "me/tiny"
TOKEN = "hf_secretsecretsecret"


def to_parquet(texts: list[str]) -> bytes:
    file = BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), file)
    return file.getvalue()


OLD, NEW = to_parquet(make_documents(40, seed=1)), to_parquet(make_documents(40, seed=2))


@pytest.fixture
def hub(tmp_path: Path, tokenizer_model: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with a tokenizer and a data set, and an empty cache. The working folder is empty too."""
    server = Hub()
    server.push("models", TINY, {"spiece.model": tokenizer_model, "pytorch_model.bin": b"no", "README.md": b"# tiny"})
    server.push("datasets", "me/texts", {"data/a.parquet": OLD, "b.parquet": NEW, "c.csv": b"text\nno"})
    use_endpoint(server.url, monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield server
    server.shutdown()
    server.server_close()


def use_endpoint(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What HF_ENDPOINT sets, which is read when huggingface_hub is imported."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


# ---- what a name stands for ----


@pytest.mark.quick
def test_a_build_by_names_has_the_rows_of_one_by_paths_and_names_the_commits(hub, tokenizer_model):
    build(TEXTS, "by-name", tokenizer=TINY)
    Path("text").mkdir()
    for name, data in (("a.parquet", OLD), ("b.parquet", NEW), ("spiece.model", tokenizer_model)):
        Path("text", name).write_bytes(data)
    build("text/*.parquet", "by-path", tokenizer="text")
    assert digest_shards(Path("by-name")) == digest_shards(Path("by-path"))
    plan, commit = read_manifest(Path("by-name")).plan, hub.repos["datasets", "me/texts"]
    assert plan.hub == {TEXTS: commit, TINY: hub.repos["models", TINY]}
    assert [one.path for one in plan.inputs] == [f"{TEXTS}@{commit}/b.parquet", f"{TEXTS}@{commit}/data/a.parquet"]
    assert {one.modified_ns for one in plan.inputs} == {0}
    assert f"`{TEXTS}`, commit `{commit}`" in Path("by-name", "README.md").read_text()
    assert read_manifest(Path("by-path")).plan.hub is None
    assert not any("README" in path or ".csv" in path or ".bin" in path for _, path, _ in hub.requests)


@pytest.mark.parametrize(
    ("name", "paths", "language"),
    [
        (f"{TEXTS}/data", ["data/a.parquet"], None),
        (f"{TEXTS}/data:de", ["data/a.parquet"], "de"),
        (f"{TEXTS}/b.parquet", ["b.parquet"], None),
        (f"{TEXTS}/data/?.parquet", ["data/a.parquet"], None),
        (f"{TEXTS}@main:de", ["b.parquet", "data/a.parquet"], "de"),
        (f"{TEXTS}@refs/convert/parquet/data", ["data/a.parquet"], None),
        (f"{TEXTS}@refs/pr/3:de", ["b.parquet", "data/a.parquet"], "de"),
        (f"{TEXTS}@new%2Ftexts/data", ["data/a.parquet"], None),
        ("@list.txt:de", ["data/a.parquet"], "de"),
    ],
)
def test_a_name_may_have_a_folder_a_revision_and_a_language(hub, name, paths, language):
    hub.branches += ["refs/convert/parquet", "refs/pr/3", "new/texts"]
    Path("list.txt").write_text(f"{TEXTS}/data\n")
    found = find_inputs([name])
    assert [item.path.partition(hub.repos["datasets", "me/texts"] + "/")[2] for item in found] == paths
    assert {item.language for item in found} == {language}


SPLITS = [
    *("plain/train-0.parquet", "plain/test-0.parquet", "plain/unsupervised-0.parquet"),
    *("raw/partial-train/0.parquet", "raw/validation/0.parquet", "only/test.parquet", "constrained/train_sft.parquet"),
]


@pytest.mark.parametrize(
    ("path", "chosen", "line"),
    [
        (
            "",
            ["constrained/train_sft.parquet", "plain/train-0.parquet", "raw/partial-train/0.parquet"],
            "3 Parquet files in constrained/, plain/, raw/partial-train/; not read, because there is a split train: "
            "only/test.parquet, plain/test-0.parquet, plain/unsupervised-0.parquet and 1 more; name a file or folder "
            "to read it",
        ),
        ("/only", ["only/test.parquet"], "1 Parquet file in only/"),
        ("/raw/validation", ["raw/validation/0.parquet"], "1 Parquet file in raw/validation/"),
        ("/plain/*.parquet", sorted(SPLITS[:3]), None),
    ],
)
def test_of_several_splits_only_train_is_read_unless_files_are_named(hub, path, chosen, line):
    hub.push("datasets", "me/texts", dict.fromkeys(SPLITS, OLD))
    said: list[str] = []
    found = find_files(f"{TEXTS}{path}", said.append)
    assert [one.partition(hub.repos["datasets", "me/texts"] + "/")[2] for one in found] == chosen
    assert said == ([f"{TEXTS}{path}: {line}"] if line else [])


def test_files_of_the_same_commit_that_another_program_downloaded_are_not_read(hub):
    huggingface_hub.snapshot_download("me/texts", repo_type="dataset")
    assert len(find_inputs([TEXTS])) == 2


def test_a_mixture_may_name_data_sets(hub):
    Path("mixture.toml").write_text(f'[[source]]\nname = "one"\npaths = "{TEXTS}/data"\n')
    report = build("mixture.toml", "out", tokenizer=TINY)
    assert report.manifest.plan.hub.keys() == {TEXTS, TINY}


def test_a_path_comes_first_and_the_hub_is_not_asked(hub, tokenizer_model):
    Path(TINY).mkdir(parents=True)
    Path(TINY, "spiece.model").write_bytes(tokenizer_model)
    assert not is_model(TINY)
    load_tokenizer(TINY)
    with pytest.raises(AlbertDataError, match="No such file"):
        load_tokenizer(Path("me/other"))  # a Path is a path
    assert not hub.requests


def test_weights_are_those_of_one_file_with_its_settings(hub):
    hub.push("models", TINY, {"config.json": b"{}", "model.safetensors": b"", "tf_model.h5": b"", "spiece.model": b""})
    folder = Path(find_model(TINY, MODEL_FILES))
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "spiece.model"]


# ---- commits ----


def test_the_same_command_uses_the_commit_of_the_build_that_is_there(hub):
    build(TEXTS, "out", tokenizer=TINY)
    before = digest_shards(Path("out"))
    commit = hub.push("datasets", "me/texts", {"b.parquet": NEW})
    assert build(TEXTS, "out", tokenizer=TINY).was_finished
    assert digest_shards(Path("out")) == before
    assert build(TEXTS, "out", tokenizer=TINY, overwrite=True).manifest.plan.hub[TEXTS] == commit
    assert digest_shards(Path("out")) != before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_resumed_build_uses_the_commits_that_it_began_with(hub, overwrite):
    build(TEXTS, "undisturbed", tokenizer=TINY)
    with pytest.raises(KeyboardInterrupt):
        build(TEXTS, "out", tokenizer=TINY, engine=InterruptedEngine(1), overwrite=overwrite)
    hub.push("datasets", "me/texts", {"b.parquet": NEW})
    report = build(TEXTS, "out", tokenizer=TINY, overwrite=overwrite)
    assert report.resumed_tasks == 1
    assert digest_shards(Path("out")) == digest_shards(Path("undisturbed"))


def test_without_a_network_the_cache_is_enough_if_it_has_each_file(hub, monkeypatch):
    find_inputs([TEXTS + "/data"])
    with monkeypatch.context() as offline:
        go_offline(offline)
        with pytest.raises(AlbertDataError, match="not whole, in the cache, and HF_HUB_OFFLINE is set"):
            find_inputs([TEXTS])
    build(TEXTS, "one", tokenizer=TINY)
    go_offline(monkeypatch)
    build(TEXTS, "two", tokenizer=TINY)
    assert read_manifest(Path("one")).plan == read_manifest(Path("two")).plan


def test_a_hub_that_never_answers_leaves_the_cache_or_is_given_up(hub, monkeypatch):
    before = find_inputs([TEXTS])
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
    unknown, lack = "hf://datasets/me/t", "is not, or not whole, in the cache, and the Hugging Face Hub could not"
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, and says nothing
        use_endpoint(f"http://127.0.0.1:{silent.getsockname()[1]}", monkeypatch)
        assert find_inputs([TEXTS]) == before
        check_refused(lambda: find_files(unknown, print), StorageError, f"{unknown} {lack}")
        check_refused(lambda: load_tokenizer("vocabb"), StorageError, f"vocabb is no path here, and {lack}")


# ---- errors ----


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("TEXTS --tokenizer me/tinny", "me/tinny is no path here, and is not on the Hugging Face Hub, or private"),
        ("hf://datasets/me/text --tokenizer me/tiny", "hf://datasets/me/text is not on the Hugging Face Hub"),
        ("hf://datasets/me/gated --tokenizer me/tiny", "hf://datasets/me/gated is gated: ask for access on its page"),
        ("TEXTS --tokenizer me/tiny@v9", "me/tiny@v9: the Hugging Face Hub has no revision v9"),
        ("TEXTS@new/texts --tokenizer me/tiny", "the Hugging Face Hub has no revision new, in which a slash is %2F"),
        ("TEXTS/none --tokenizer me/tiny", "holds no none/*.parquet, and only Parquet is read"),
        ("hf://me/texts --tokenizer me/tiny", "write hf://datasets/OWNER/NAME"),
        ("hf://datasets/me/../texts --tokenizer me/tiny", "Hugging Face Hub"),
        ("TEXTS --tokenizer my--vocab", "my--vocab is no path here, and can be no name on the Hugging Face Hub"),
    ],
)
def test_a_wrong_name_is_one_line_without_the_token(hub, capfd, names, message):
    hub.push("datasets", "me/gated", {})
    hub.gated.add("me/gated")
    assert run(["build", *names.replace("TEXTS", TEXTS).split(), "-o", "out"]) == 1
    shown = capfd.readouterr()
    (error,) = [line for line in shown.err.splitlines() if line.startswith("Error: ")]
    assert message in error
    assert TOKEN not in shown.out + shown.err
    assert all(token == f"Bearer {TOKEN}" for *_, token in hub.requests), "but the Hub gets it"
    assert not Path("out").exists()


def test_a_token_that_expired_is_named_as_the_cause(hub):
    hub.accepts_token = False
    with pytest.raises(AlbertDataError, match="the Hugging Face Hub answers 401; check the token with"):
        load_tokenizer(TINY)


@pytest.mark.parametrize(
    ("lack", "message"),
    [
        ("network", "the Hugging Face Hub could not be reached; check the name and the network"),
        ("cache", "HF_HUB_OFFLINE is set; unset it, or download it before"),
        ("package", "pip install 'albert-data[hub]'"),
    ],
)
@pytest.mark.parametrize("command", [f"build {TEXTS} --tokenizer {TINY} -o out", f"train shards --init-from {TINY}"])
def test_what_is_lacking_is_one_line(hub, capfd, monkeypatch, lack, message, command):
    if lack == "network":
        use_endpoint("http://127.0.0.1:9", monkeypatch)
    elif lack == "cache":
        go_offline(monkeypatch)
    else:
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert run(command.split()) == 1
    lines = capfd.readouterr().err.splitlines()
    assert message in lines[-1]
    assert len([line for line in lines if line.startswith("Error: ")]) == 1
