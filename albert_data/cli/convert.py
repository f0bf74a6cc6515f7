"""`albert-data convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albert_data.cli.options import PLACE, engine_options, json_option, open_engine, shards_argument
from albert_data.convert import FORMATS
from albert_data.text.output import show, show_json
from albert_data.text.wording import count_of

if TYPE_CHECKING:
    from albert_data.convert.conversion import Conversion


@click.command()
@shards_argument
@click.option(
    "-o", "--output", type=PLACE, required=True, metavar="DIR", help="Folder to write. It must be new or empty."
)
@click.option(
    "--to",
    type=click.Choice(FORMATS),
    required=True,
    help="For Hugging Face datasets or for mosaicml-streaming.",
)
@click.option("--split", type=click.Choice(("train", "validation")), help="Convert only this split.")
@click.option("--unmasked", is_flag=True, help="Write the original tokens, for a trainer that draws the masks.")
@click.option(
    "--pack",
    type=int,
    metavar="TOKENS",
    help="Write packs of rows, of up to so many tokens, from shards of --pairs none.",
)
@engine_options
@json_option
def convert(shards: Path, output: Path, to: str, as_json: bool, **settings: Any) -> None:
    """Write the rows of a shard folder in the format of another trainer.

    DIR gets all of its files or none.

    \b
    Example:
      albert-data convert shards -o dataset --to parquet
      albert-data convert shards -o streams --to mds --unmasked
      albert-data convert shards -o packs --to parquet --pack 8192
    """
    from albert_data.library.shards import convert_shards

    with open_engine(settings) as given:
        done = convert_shards(shards, output, to, progress=True, **given)
    if as_json:
        show_json(done.to_dict())
    else:
        show(*_describe(done, output, settings["pack"]), _describe_next(done, output, to))


def _describe(done: Conversion, output: Path, pack: int | None) -> list[str]:
    found, name = done.to_dict(), "row" if pack is None else "pack"
    rows, files = count_of(sum(found["num_rows"].values()), name), count_of(found["num_files"], "file")
    line = f"{output}: {rows} in {files}, {found['num_bytes'] / 1e6:,.1f} MB"
    return [line] if pack is None else [line, _describe_packs(done, pack)]


def _describe_packs(done: Conversion, pack: int) -> str:
    counts, num_packs = done.record["packs"], sum(done.record["num_rows"].values())
    full = counts["num_tokens"] / (pack * num_packs)
    share = counts["num_cut_rows"] / counts["num_rows"]
    return f"packs are {full:.1%} full; {share:.1%} of the rows are cut".replace("%", " %")


def _describe_next(done: Conversion, output: Path, to: str) -> str:
    split = next(iter(done.record["num_rows"]))
    if to == "parquet":
        return f"Next, in Python: datasets.load_dataset({str(output)!r})"
    return f"Next, in Python: streaming.StreamingDataset(local={str(output / split)!r}, batch_size=32)"
