"""Shard folders for the tests of the report: text that attacks the page, and text in many scripts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from inspect_fixtures import get_tokenizer, make_examples, write_folder

from albert_data.config import ExampleConfig

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
