"""The same documents in any format give the same canonical text, and the same shards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import build_fixtures as fixtures
import pytest
from corpus_fixtures import read_inputs, small_sizes
from format_fixtures import LAYOUTS
from hypothesis import given
from hypothesis import strategies as st

from albert_data.config import TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import find_inputs
from albert_data.tokenizer.model import Tokenizer

DOCUMENTS = fixtures.make_documents(300, seed=9)
PIECES = ["a", "Wort ", "\n\n", "\r\n", "\\n", *'\n\r\u2028\u0085\t \0\ufeff中",']
odd_texts = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), min_size=1, max_size=12)


def read_all(path: Path, config: TextConfig | None = None) -> tuple[list[bytes], Counter[str]]:
    """The sorted documents of a path, read task by task, and what was counted."""
    config = config or TextConfig()
    damage = Damage(strict=config.strict)
    found = read_inputs(find_inputs([str(path)], text=config), config, damage)
    return sorted(document for document, _ in found), damage.counts


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("expected")
    (folder / "a.txt").write_bytes(fixtures.to_txt(DOCUMENTS))
    fixtures.run_build(folder / "a.txt", folder / "out", tokenizer)
    return fixtures.digest_shards(folder / "out")


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_format_gives_the_same_shards(tmp_path: Path, name: str, expected: dict[str, str], tokenizer: Tokenizer):
    LAYOUTS[name](tmp_path / name, DOCUMENTS)
    with fixtures.small_tasks(1 << 12):
        fixtures.run_build(tmp_path / name, tmp_path / "out", tokenizer)
    assert fixtures.digest_shards(tmp_path / "out") == expected


@given(odd_texts)
def test_odd_texts_are_the_same_in_every_format(texts: list[str]):
    with TemporaryDirectory() as name, small_sizes():
        folder = Path(name)
        found = []
        for name, write in LAYOUTS.items():
            write(folder / name, texts)
            documents, counts = read_all(folder / name)
            if name.startswith("a.txt"):  # where blank lines are no document
                counts["empty_document"] = sum(not fixtures.canonical(text) for text in texts)
            found.append((documents, +counts))
    assert all(one == found[0] for one in found), dict(zip(LAYOUTS, found, strict=True))
