"""The code that torch.compile generates for a GPU moves few bytes; counted without a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).with_name("generated_code.py")


@pytest.mark.slow  # it compiles a stub of a GPU, and generates code for ten seconds
@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="generated_code.py uses private parts of torch 2.13"
)
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton (pip install triton)")
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_an_inner_layer_and_the_mlm_head_with_its_loss_move_few_bytes(tmp_path):
    folder = str(SCRIPT.parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    moved = json.loads(done.stdout.splitlines()[-1])
    # Transformers' model moves 145 bytes for each element of [B, T, H] and layer, and 5 GB for the head.
    assert moved["bytes_per_element"] <= 110
    assert moved["head_gb"] <= 2.0
