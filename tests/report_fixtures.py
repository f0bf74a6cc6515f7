"""Shard folders for the tests of the report: text and names that attack the page, and text in many scripts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from build_fixtures import make_documents, run_build, to_txt
from inspect_fixtures import get_tokenizer, make_examples, write_folder

from albert_data.config import ExampleConfig
from albert_data.corpus.inputs import Input, find_inputs
from albert_data.tokenizer.model import Tokenizer

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror=window.hacked=1> <svg onload=window.hacked=1>",
    "<!--<script>window.hacked = 1//--> ]]> ${window.hacked=1} \\u003cscript\\u003e",
    "\"'><b onmouseover=window.hacked=1>&lt;&#60;</b> javascript:window.hacked=1",
)
ARABIC = "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق"
CHINESE = "人人生而自由,在尊严和权利上一律平等"
CONFIG = ExampleConfig(max_seq_len=192, seed=5)


def write_hostile(folder: Path) -> Path:
    """Rows of HOSTILE, ARABIC and CHINESE text, spelt in bytes, and one row without a pair."""
    sentences = [*HOSTILE, ARABIC, CHINESE, "the river talking quickly . people walked"]
    ids = [get_tokenizer().encode([sentence])[0].tolist() for sentence in sentences]
    documents = [[sentence, sentence] for sentence in ids for _ in range(3)]
    documents += [[get_tokenizer().encode(["river"])[0].tolist()]]
    examples = make_examples(documents, replace(CONFIG, mask_prob=0.05))
    return write_folder(folder, {"train": [examples]}, CONFIG)


HOSTILE_NAMES = (
    "<img src=x onerror=window.hacked=1>.txt",
    "$\\frac{$.txt",
    "a$b$c.txt",
    "]]><!-- &lt;&#60; \"'.txt",
    "x\x1b[31m\n\u202e.txt",
    f"{'long-' * 40}a.txt",
    f"{CHINESE * 4}.txt",
    f"{ARABIC}.txt",
    "bad\udcff.txt",
)


def build_hostile_sources(folder: Path, tokenizer: Tokenizer) -> tuple[Path, list[Input]]:
    """A set built from files of HOSTILE_NAMES and 20 others, and these files."""
    (folder / "in").mkdir(parents=True)
    for i, name in enumerate([*HOSTILE_NAMES, *(f"part-{i:02}.txt" for i in range(20))]):
        documents = make_documents(6 if name in HOSTILE_NAMES else 1, seed=100 + i)
        (folder / "in" / name).write_bytes(to_txt([*documents, f"Ж {i} of this Щ."]))
    run_build(folder / "in", folder / "out", tokenizer)
    return folder / "out", find_inputs([str(folder / "in")])
