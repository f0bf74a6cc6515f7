"""The formula counts the parameters that the model, transformers and the paper have."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from albert_data.cli.main import run
from albert_data.train.config import MODEL_PRESETS, AlbertConfig
from albert_data.train.model import Albert
from albert_data.train.sizes import count_parameters

_BERT_LARGE = {"embedding_size": 1024, "hidden_size": 1024, "num_layers": 24, "num_heads": 16, "ffn_size": 4096}
# Lan et al. 2020, table 1: the parameters of each model in millions.
PAPER = {
    "base": (MODEL_PRESETS["base"], 12),
    "large": (MODEL_PRESETS["large"], 18),
    "xlarge": (MODEL_PRESETS["xlarge"], 60),
    "xxlarge": (MODEL_PRESETS["xxlarge"], 235),
    "BERT base": (AlbertConfig(embedding_size=768, share="none", dropout=0.1), 108),
    "BERT large": (AlbertConfig(**_BERT_LARGE, share="none", dropout=0.1), 334),
}
VARIANTS = {
    **MODEL_PRESETS,
    "bert-base": PAPER["BERT base"][0],
    "bert-large": PAPER["BERT large"][0],
    "groups": AlbertConfig(num_groups=3),
    "inner groups": AlbertConfig(num_groups=2, num_inner_groups=2),
    "attention": AlbertConfig(share="attention", num_groups=2, num_inner_groups=2),
    "ffn": AlbertConfig(share="ffn", num_groups=4),
}


def show(capsys, *arguments: str) -> str:
    assert run(["presets", *arguments]) == 0
    return capsys.readouterr().out


def test_presets_without_a_name_lists_all(capsys):
    sizes = json.loads(show(capsys, "--json"))
    assert sizes == {name: count_parameters(config).all for name, config in MODEL_PRESETS.items()}
    assert f"{sizes['tiny']:,} parameters" in show(capsys)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_formula_counts_what_the_model_has(name):
    with torch.device("meta"):
        model = Albert(VARIANTS[name])
    sizes, encoder = count_parameters(VARIANTS[name]), model.encoder
    parts = {
        "attention": encoder.attentions,
        "ffn": encoder.ffns,
        "projection": model.embeddings.project,
        "pooler": model.pooler,
        "mlm_head": model.mlm_head,
        "sop_head": model.sop_head,
    }
    assert {part: getattr(sizes, part) for part in parts} == {
        part: sum(p.numel() for p in module.parameters()) for part, module in parts.items()
    }
    assert sizes.all == model.num_parameters()


@pytest.mark.parametrize(("share", "millions"), [("all", 12), ("attention", 64), ("ffn", 38), ("none", 89)])
def test_each_way_of_sharing_has_the_millions_of_the_papers_table_4(share, millions):
    assert abs(count_parameters(AlbertConfig(share=share)).all / 1e6 - millions) < 1


def test_each_model_of_table_1_has_the_papers_millions_but_xxlarge_which_has_those_of_the_published_code():
    found = {}
    for name, (config, _) in PAPER.items():
        sizes = count_parameters(config)  # of BERT the paper counts embeddings and layers
        found[name] = (sizes.embeddings + sizes.layers if "BERT" in name else sizes.without_heads) / 1e6
    assert round(found.pop("xxlarge")) == 223
    assert round(found.pop("xlarge"), -1) == 60
    assert {name: int(millions + 0.5) for name, millions in found.items()} == {name: PAPER[name][1] for name in found}


def test_version_1_differs_from_version_2_by_its_dropout_alone():
    for name in ("base", "large", "xlarge", "xxlarge"):
        first, second = MODEL_PRESETS[f"{name}-v1"], MODEL_PRESETS[name]
        assert second.dropout == 0
        assert first.dropout == (0 if name == "xxlarge" else 0.1)
        assert count_parameters(first) == count_parameters(second)


def test_the_page_of_a_preset_has_its_parts(capsys, golden):
    golden("preset_base.txt", show(capsys, "base"))
    for name in MODEL_PRESETS:
        assert max(map(len, show(capsys, name).splitlines())) <= 80
    shown = json.loads(show(capsys, "base", "--json"))
    heads = (768 * 128 + 128) + 2 * 128 + 30_000 + (768 * 2 + 2)
    assert shown["parameters"]["all"] == 11_683_584 + heads == 11_813_810, "of the published model, and the heads"


def test_a_preset_needs_no_torch_and_no_folder(tmp_path):
    code = "import sys; sys.modules['torch'] = None; from albert_data.cli.main import run; run(['presets', 'xxlarge'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "223,158,450" in done.stdout
