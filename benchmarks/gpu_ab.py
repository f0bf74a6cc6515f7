"""Times what makes updates fast on a GPU, each on and off in one process, in turns.

    python -m benchmarks.gpu_ab SHARDS_512 SHARDS_128

attention    base on rows of 512: FlashAttention 2, and every other kernel that PyTorch can use here
last layer   the same: computed for all cells, and for those that the heads read
graphs       mini on rows of 128, in batches of 2,048 and of 32,768 tokens: without and with CUDA graphs

It prints a line for each way and writes all seconds. On a CPU, which has no choice, it times what is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import torch
from torch import Tensor

from albert_data.train import attention
from albert_data.train.config import RECIPES
from albert_data.train.device import ALONE, choose_precision
from albert_data.train.graphs import Graphs, explain_no_graphs
from albert_data.train.loader import open_training
from albert_data.train.memory import fit_batches
from albert_data.train.state import choose_shape, make_loader, start_session
from albert_data.train.update import update
from benchmarks.training import Machine, take_turns


class Variant:
    """A training whose updates are made one by one."""

    def __init__(self, machine: Machine, preset: str, shards: Path, tokens: int, **ways: Any) -> None:
        """ways: kernel, of attention; whole: whether the last layer is computed for all cells; graphs."""
        self._kernel = ways.get("kernel", attention.FLASH_2)
        config = replace(RECIPES["muon"][preset], batch_tokens=tokens, compile=machine.is_compiled, first_window=0)
        rows, precision = open_training(shards).train, choose_precision("auto", str(machine.device))
        shape = choose_shape(config, rows.manifest)
        tried = attention.choose_attention(
            precision, shape, [0], rows.manifest.config.examples.max_seq_len, [self._kernel]
        )
        loader, _ = make_loader(rows, config, precision, ALONE, tried.obstacle)
        self._session = start_session(config, shape, precision, ALONE, {})
        if ways.get("whole"):
            self._session.model.encoder = _WholeEncoder(self._session.model.encoder)
        fit_batches(self._session, loader)
        if ways.get("graphs") and explain_no_graphs(self._session, is_divided=False) is None:
            self._session.replay = Graphs(self._session, click.echo).replay
        self._steps, self.num_tokens = loader.stream(machine.device), 0

    def __call__(self) -> Tensor:
        attention.use_kernel(self._kernel)
        batches = next(self._steps)
        counts = {name: sum(getattr(batch, name) for batch in batches) for name in ("num_masked", "num_pairs")}
        update(self._session, batches, lr=1e-4, **counts)
        self.num_tokens += sum(batch.num_tokens for batch in batches)
        return torch.zeros(())

    @property
    def tokens_per_update(self) -> float:
        return self.num_tokens / self._session.step


class _WholeEncoder(torch.nn.Module):
    """An encoder that computes the last layer for all cells too, and then takes those that are read."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x_BTH: Tensor, rows: Any, cells_C: Tensor) -> Tensor:
        taken_CH: Tensor = self.encoder(x_BTH, rows).flatten(0, 1).index_select(0, cells_C)
        return taken_CH


def list_pairs(machine: Machine, long: Path, short: Path, *, tiny: bool) -> Iterator[tuple[str, dict[str, Variant]]]:
    large, small = ("tiny", "tiny") if tiny else ("base", "mini")
    make = partial(Variant, machine, large, long, 4096 if tiny else 65_536)
    kernels = attention.list_kernels() if machine.device.type == "cuda" else [attention.FLASH_2]
    yield "attention", {kernel: make(kernel=kernel) for kernel in kernels if _is_there(kernel)}
    yield "last layer", {"all cells": make(whole=True), "read cells": make()}
    for tokens in (2048, 4096 if tiny else 32_768):
        make = partial(Variant, machine, small, short, tokens)
        yield f"graphs, {tokens:,} tokens", {"without": make(), "with": make(graphs=True)}


def _is_there(kernel: str) -> bool:
    try:
        attention.use_kernel(kernel)
    except ImportError:
        return False
    return True


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("long", type=click.Path(exists=True, path_type=Path), metavar="SHARDS_512")
@click.argument("short", type=click.Path(exists=True, path_type=Path), metavar="SHARDS_128")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("ab.json"), show_default=True)
@click.option("--device", default="cuda", show_default=True)
@click.option("--runs", default=5, show_default=True, help="Turns of each variant.")
@click.option("--seconds", default=1.0, show_default=True, help="About how long a turn takes.")
@click.option("--tiny", is_flag=True, help="Toy sizes, to try it on a CPU.")
def main(long: Path, short: Path, output: Path, device: str, runs: int, seconds: float, tiny: bool) -> None:
    """Time each way of computing updates beside the other, in turns."""
    machine = Machine(device=torch.device(device), runs=runs, round_seconds=seconds, is_compiled=not tiny)
    found: dict[str, dict[str, Any]] = {}
    for name, variants in list_pairs(machine, long, short, tiny=tiny):
        for variant in variants.values():
            for _ in range(4):  # compiles, makes the optimiser's state, records graphs
                variant()
        times = take_turns(variants, machine)
        found[name] = {}
        for way, each in times.items():
            rate = variants[way].tokens_per_update / median(each)
            found[name][way] = {"seconds": each, "tokens_per_second": round(rate)}
            click.echo(f"{name:24} {way:12} {1e3 * median(each):8.2f} ms  {rate:12,.0f} tokens/s")
        output.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
