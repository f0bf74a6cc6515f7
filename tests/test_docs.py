"""The documents say what is so: the command reference is current, commands and code run, quoted messages exist."""

from __future__ import annotations

import ast
import gzip
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

import audit_reference
import pyarrow
import pyarrow.parquet
import pytest

from albert_data import BuildConfig, ExampleConfig, VocabConfig, build, open_shards, train_vocab
from albert_data.cli.main import COMMANDS, run
from scripts.install_lines import IS_RELEASED, PAGES, rewrite

ROOT = Path(__file__).parent.parent
GUIDES, REFERENCE, EXPLANATION = (ROOT / "docs" / shelf for shelf in ("guides", "reference", "explanation"))
README, PYTHON_PAGE, HUGGINGFACE_PAGE = ROOT / "README.md", GUIDES / "python.md", GUIDES / "huggingface.md"


def blocks(language: str, page: Path = README) -> list[str]:
    """The code blocks of a language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def list_cells() -> list[tuple[str, str]]:
    """The cells of the Python page as a notebook: the extra that each needs, if any, and its code."""
    text = PYTHON_PAGE.read_text(encoding="utf-8")
    return re.findall(r'^```python(?: tags=\["(\w+)"\])?\n(.*?)^```', text, re.MULTILINE | re.DOTALL)


def run_python(code: str, folder: Path) -> str:
    """Run code in a folder, with no names but its own. Returns what Python's prompt would show."""
    with redirect_stdout(StringIO()) as shown, chdir(folder):
        exec(compile(ast.Interactive(ast.parse(code).body), "code of a page", "single"), {"__name__": "__main__"})
    return shown.getvalue()


def run_command(command: str, folder: Path, *more: str) -> None:
    with chdir(folder):
        assert run([*shlex.split(command)[1:], *more]) == 0, command


def test_the_command_reference_is_what_help_prints():
    # In a process of its own: click keeps a command's help option, whatever test made it, for its next context.
    made = subprocess.run(
        [sys.executable, ROOT / "tests" / "cli_reference.py"], capture_output=True, text=True, check=True
    )
    assert (REFERENCE / "cli.md").read_text(encoding="utf-8") == made.stdout, "run `make docs`"


def test_the_checks_in_the_page_on_the_audit_are_those_of_the_rules():
    page = audit_reference.PAGE.read_text(encoding="utf-8")
    assert audit_reference.complete(page) == page, "run `make docs`"


def test_every_document_and_heading_that_another_links_to_exists():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for name, anchor in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
            target = page.parent / name if name else page
            assert target.exists(), f"{page.name} links to {name}"
            assert not anchor or anchor in anchors(target), f"{page.name} links to {name}#{anchor}"


def test_every_page_that_code_names_exists():
    for folder in ("albert_data", "benchmarks", "docs/examples", "reliability", "scripts"):
        for path in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r"docs/[\w/-]+\.md", path.read_text(encoding="utf-8")):
                assert (ROOT / name).exists(), f"{path.relative_to(ROOT)} names {name}"


def test_the_index_of_a_shelf_links_to_each_of_its_pages():
    for shelf in filter(Path.is_dir, (ROOT / "docs").iterdir()):
        names = {page.name for page in shelf.glob("*.md")} - {"index.md"}
        index = (shelf / "index.md").read_text(encoding="utf-8") if names else ""
        assert not [name for name in names if f"]({name})" not in index], shelf


def test_the_first_lines_of_installing_are_those_of_the_setting():
    for name in PAGES:
        page = (ROOT / name).read_text(encoding="utf-8")
        assert rewrite(page) == page, f"{name}: run `make docs`"
        other = rewrite(page, not IS_RELEASED)
        assert other != page
        assert rewrite(other) == page
        released = page if IS_RELEASED else other
        assert not re.findall(r"pip install '?\.|--from \.", released)


def test_the_list_of_pages_for_language_models_has_each_page_once_with_a_sentence():
    spec = importlib.util.spec_from_file_location("conf", ROOT / "docs" / "conf.py")
    spec.loader.exec_module(conf := importlib.util.module_from_spec(spec))
    title, _, summary, *lines = conf.list_pages(ROOT / "docs").splitlines()
    assert title == "# albert-data"
    assert summary.startswith("> Turn your own text into pretraining shards")
    assert [line for line in lines if line.startswith("#")] == [
        f"## {name}" for name in ("Tutorial", "Guides", "Reference", "Explanation")
    ]
    linked = [re.fullmatch(r"- \[[^]]+\]\(([\w/-]+)\.html\): [^`\[]{20,}", line) for line in lines if line[:1] == "-"]
    pages = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(found[1] for found in linked) == sorted(page for page in pages if not page.endswith("index"))


def test_the_readme_and_the_site_begin_with_one_picture_of_at_most_80_columns():
    picture = blocks("")[0]
    assert blocks("", ROOT / "docs" / "index.md")[0] == picture
    assert max(map(len, picture.splitlines())) <= 80


def test_the_page_on_commands_has_a_line_for_each():
    page = (GUIDES / "which-command.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\|.*\| `(\w+)[^`]*` \|", page, re.MULTILINE)) == set(COMMANDS)


def anchors(page: Path) -> set[str]:
    """The names by which links find the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_functions_and_tests_that_fidelity_names_exist():
    page = (EXPLANATION / "fidelity.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 15
    for _, _, functions, tests, *_ in rows:
        for quoted in re.findall(r"`([^`]+)`", functions):
            if re.fullmatch(r"[\w/.]+(\.py)?(: [\w, ]+)?", quoted):  # else a command or an option
                check_names(quoted)
        for name in re.findall(r"test_\w+\.py", tests):
            assert list((ROOT / "tests").rglob(name)), f"docs/explanation/fidelity.md names {name}"


def test_the_hops_and_files_that_the_architecture_names_exist():
    page = (EXPLANATION / "architecture.md").read_text(encoding="utf-8")
    hops = re.findall(r"\| `([\w/]+\.py: \w+)` \|$", page, re.MULTILINE)
    assert len(hops) > 30
    for quoted in {*hops, *re.findall(r"`([\w/]+\.py)`", page)}:
        check_names(quoted)


def check_names(quoted: str) -> None:
    """Fail unless `module.py: name, name`, `module.py` or `name` is found in the package."""
    module, _, names = quoted.partition(": ") if ".py" in quoted else ("", "", quoted)
    sources = [
        path for path in (ROOT / "albert_data").rglob("*.py") if str(path).endswith(f"/{module}" if module else "")
    ]
    assert sources, f"the docs name {module}"
    for name in filter(None, names.split(", ")):
        found = any(
            re.search(rf"^ *(def|class) {name}\b", path.read_text(encoding="utf-8"), re.MULTILINE) for path in sources
        )
        assert found, f"the docs name {quoted}, but there is no {name}"


def read_literals() -> list[str]:
    """All strings of the package; what an f-string puts in is a tab."""
    found = []
    for path in (ROOT / "albert_data").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(part.value if isinstance(part, ast.Constant) else "\t" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_each_message_of_the_page_on_errors_has_the_fixed_words_of_a_literal_of_the_package():
    page = (GUIDES / "when-something-goes-wrong.md").read_text(encoding="utf-8")
    messages = [message for _, message in re.findall(r"^\| (``?)(.+?) ?\1 \|", page, re.MULTILINE)]
    assert len(messages) > 35
    literals = read_literals()
    for message in messages:
        pattern = re.compile(re.escape(message).replace(r"\.\.\.", ".+"), re.DOTALL)
        assert any(map(pattern.search, literals)), f"no source says {message}"


def test_the_commands_and_the_python_of_the_readme_make_what_it_says(tmp_path):
    (tmp_path / "sample_corpus").symlink_to(ROOT / "sample_corpus")
    commands = [line for block in blocks("") for line in block.splitlines() if line.startswith("albert-data ")]
    assert len(commands) == 9
    commands.remove("albert-data quickstart")  # test_quickstart.py has it
    commands = [command.replace("TEXT", "sample_corpus") for command in commands]
    sooner = {"quickstart": ["--minutes", "0"], "train": ["--batch-tokens", "1024"]}
    for command in commands:
        run_command(command, tmp_path, *sooner.get(command.split()[1], []))
    for name in ("first/report.html", "shards/manifest.json", "run/run.json", "model/config.json"):
        assert (tmp_path / name).is_file()
    (code,) = blocks("python")
    assert "\nShards('shards', train, " in run_python(code, tmp_path)


@pytest.mark.slow
def test_the_examples_of_the_python_page_run_in_order(tmp_path):
    (tmp_path / "sample_corpus").symlink_to(ROOT / "sample_corpus")
    needs = {"": "albert_data", "train": "torch"}
    can_run = {extra: importlib.util.find_spec(package) is not None for extra, package in needs.items()}
    shown = run_python("".join(code for extra, code in list_cells() if can_run[extra]), tmp_path)
    for line in (
        "VocabReport(4,000 pieces (unigram), ",
        "BuildReport(",
        "masking='span'",
        "stage: reading",
        "Inspection('shards', ",
        "Audit('shards': ",
        "Verification('shards': ",
        "Conversion(",
        "Shards('shards', train, ",
        "Another one.",
        "['Dr. Smith arrived at 5 p.m. in London.', 'He was late.']",
        "input no-such-file.txt does not exist",
        "build has no argument 'max_seq_length'; is it one of: max_seq_len",
        *(["TrainedRun('run', step 3, ", "pairs right", "AlbertForPreTraining"] if can_run["train"] else []),
    ):
        assert line in shown


def test_the_example_of_the_page_on_mixtures_runs(tmp_path, capsys):
    (tmp_path / "sample_corpus").symlink_to(ROOT / "sample_corpus")
    page = GUIDES / "mixtures.md"
    (example,), (commands,) = blocks("toml", page), blocks("sh", page)
    (tmp_path / "mixture.toml").write_text(example)
    for command in commands.splitlines():
        run_command(command, tmp_path)
    articles, chinese = open_shards(tmp_path / "shards").manifest.mixture or ()
    assert (articles.passes, chinese.tokens) == (2.0, 500)
    assert 0 < chinese.num_used_documents < chinese.num_documents
    assert "Sources of train, the worst first" in capsys.readouterr().out


def test_the_recipe_of_the_page_on_cleaning_reads_what_datatrove_writes(tmp_path):
    """The files are as JsonlWriter and ParquetWriter of datatrove 0.10.1 write them."""
    page = (ROOT / "sample_corpus" / "english-1.txt").read_text(encoding="utf-8")
    texts = list(filter(None, page.split("\n")))
    metadata = [{"language": "en", "language_score": number % 20 / 20} for number in range(len(texts))]
    records = [
        {"text": text, "id": f"<urn:{number}>", "metadata": one}
        for number, (text, one) in enumerate(zip(texts, metadata, strict=True))
    ]
    (tmp_path / "filtered").mkdir()
    lines = "".join(json.dumps(record) + "\n" for record in records[::2])
    (tmp_path / "filtered" / "00000.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records[1::2]), tmp_path / "filtered" / "000_00000.parquet")
    (commands,) = blocks("sh", GUIDES / "cleaning.md")
    for command in commands.splitlines():
        run_command(command.replace("2000", "300"), tmp_path)
    manifest = open_shards(tmp_path / "shards").manifest
    assert manifest.counts.documents == sum(one["language_score"] >= 0.65 for one in metadata) > 10
    assert manifest.damage == {"excluded": len(texts) - manifest.counts.documents}


@pytest.fixture(scope="module")
def sample_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that contains `shards`, built from the sample corpus."""
    folder = tmp_path_factory.mktemp("huggingface")
    corpus, vocab = str(ROOT / "sample_corpus"), folder / "vocab"
    train_vocab(corpus, vocab, config=VocabConfig(vocab_size=2000))
    config = BuildConfig(examples=ExampleConfig(max_seq_len=64), validation_fraction=0.1)
    build(corpus, folder / "shards", tokenizer=vocab, config=config)
    return folder


@pytest.mark.slow
def test_the_code_of_the_hugging_face_page_loads_packs_learns_and_saves_a_model(sample_shards):
    pytest.importorskip("accelerate", reason="the huggingface extra is not installed")
    (sample_shards / "sample_corpus").symlink_to(ROOT / "sample_corpus")
    code, loader, *more = blocks("python", HUGGINGFACE_PAGE)
    (packing,) = [block for block in more if "pack=512" in block]
    assert "sentence_order_label" in run_python(loader, sample_shards)
    rows, packs = map(int, re.search(r"(\d+) rows in (\d+) packs", run_python(packing, sample_shards)).groups())
    assert 4 * packs < rows
    code += "from transformers import pipeline\nprint(pipeline('fill-mask', model='model')('今天[MASK]'))"
    shown = run_python(code, sample_shards)
    losses = [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", shown)]
    assert losses[0] > losses[-1] + 0.5
    assert float(re.search(r"validation loss: ([\d.]+)", shown)[1]) < losses[0]
    assert "token_str" in shown


@pytest.mark.slow
def test_datasets_loads_a_shard_folder(sample_shards, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    found = datasets.load_dataset(str(sample_shards / "shards"), cache_dir=str(sample_shards / "cache"))
    for split in ("train", "validation"):
        for there, here in zip(found[split], open_shards(sample_shards / "shards", split), strict=True):
            assert there["input_ids"] == here.input_ids.tolist()
            assert there["masked_positions"] == here.masked_positions.tolist()
            assert there["sop_label"] == here.sop_label


def test_every_public_name_is_documented_and_loaded_only_when_it_is_used():
    page = PYTHON_PAGE.read_text(encoding="utf-8") + README.read_text(encoding="utf-8")
    code = (
        "import sys, albert_data\n"
        "assert not {'numba', 'numpy', 'pyarrow'} & set(sys.modules)\n"
        "for name in albert_data.__all__: getattr(albert_data, name)\n"
        "assert set(albert_data.__all__) <= set(dir(albert_data))\n"
        "print(*albert_data.__all__)"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    for name in shown.split():
        assert name == "__version__" or re.search(rf"\b{name}\b", page), f"guides/python.md does not mention {name}"
    assert (ROOT / "albert_data" / "py.typed").exists()


@pytest.mark.slow
def test_the_commands_of_the_tutorial_lead_from_messy_files_to_a_classifier(tmp_path, capsys):
    """With fewer steps of training."""
    pytest.importorskip("transformers", reason="the huggingface extra is not installed")
    tutorial = ROOT / "docs" / "tutorial" / "one-evening.md"
    for name in ("sample_corpus", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (messy,) = blocks("python", tutorial)
    run_python(messy, tmp_path)
    for name, language in ("pairs.jsonl", "json"), ("remarks.txt", "text"):
        (content,) = blocks(language, tutorial)
        (tmp_path / name).write_text(content, encoding="utf-8")
    for line in (line for block in blocks("sh", tutorial) for line in block.splitlines()):
        if line.startswith("albert-data "):
            run_command(line.replace("--steps 300", "--steps 4"), tmp_path)
        else:
            line = line.replace("--save", "--steps 4 --save").replace("python ", f"{sys.executable} ", 1)
            done = subprocess.run(line, shell=True, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
    assert [line.split("\t")[1] for line in done.stdout.splitlines()] == content.splitlines()

    said, page = capsys.readouterr(), tutorial.read_text(encoding="utf-8")
    quoted = re.findall(r"^    ((?:warning|removed|dropped) .*)", page, re.MULTILINE)
    assert len(quoted) == 5
    assert not [line for line in quoted if line not in said.out + said.err]
    assert (tmp_path / "report.html").is_file()
