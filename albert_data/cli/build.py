"""`albert-data build`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from albert_data.cli.options import (
    ALPHA,
    PLACE,
    TOKENIZER,
    allow_loss_option,
    engine_options,
    inputs_argument,
    json_option,
    normalization_option,
    open_engine,
    parse_pairs,
    setting,
    take_given,
    text_options,
    validation_option,
)
from albert_data.config import COMPRESSIONS, MASKING_LAWS, BuildConfig, ExampleConfig, TextConfig
from albert_data.examples.pair_tasks import PAIR_TASKS
from albert_data.storage.interrupts import say_when_interrupted
from albert_data.text.output import show, show_json

_example_setting, _build_setting = partial(setting, ExampleConfig), partial(setting, BuildConfig)


@click.command()
@inputs_argument
@click.option(
    "-o", "--output", type=PLACE, required=True, metavar="OUT", help="Folder to write: new, empty or of a build."
)
@click.option(
    "--tokenizer",
    type=TOKENIZER,
    metavar="PATH",
    help="SentencePiece model, vocab.txt or tokenizer.json, a folder with one, or a name on the Hugging Face Hub.  "
    "[default: train a vocabulary]",
)
@normalization_option
@click.option(
    "--words",
    default="none",
    show_default=True,
    metavar="LIST",
    help="Words of scripts without spaces, to mask whole words: a file with one a line, or jieba.",
)
@click.option(
    "--special",
    multiple=True,
    metavar="ROLE=PIECE",
    callback=parse_pairs,
    help="Piece for a role (pad, unk, cls, sep or mask) if its name is unusual: cls=<bos>. Repeatable.",
)
@_example_setting("--max-seq-len", "Most tokens in a row, with [CLS] and [SEP].")
@_example_setting(
    "--pairs",
    "Sentence task: two segments in order or swapped (sop), the second from the same or another document (nsp), both "
    "in three labels (order3), or none.",
    type=click.Choice(tuple(PAIR_TASKS)),
)
@_example_setting(
    "--masking",
    "What to mask: spans of words as in ALBERT (ngram), longer spans as in SpanBERT (span), or single words or pieces "
    "as in BERT.",
    type=click.Choice(MASKING_LAWS),
)
@_example_setting("--ngram", "Longest span of --masking ngram, in words.")
@_example_setting("--mask-prob", "Share of the tokens to mask.")
@_example_setting("--replace", "Percentages of masked tokens: [MASK], a random piece, unchanged.", metavar="M/R/K")
@_example_setting("--short-seq-prob", "Share of the rows with a random shorter length.")
@_example_setting("--whole-word/--pieces", "Mask whole words, or treat each piece as a word.")
@_example_setting("--dupe-factor", "Passes over the corpus, each with different pairs and masks.")
@_build_setting("--alpha", ALPHA, type=float, metavar="A")
@_build_setting("--max-passes", "Most passes over a language with --alpha, times --dupe-factor.")
@_build_setting(
    "--sample",
    "Share of the documents to read, above 0; a larger share contains a smaller one.  [default: all]",
    type=float,
    metavar="SHARE",
)
@_build_setting(
    "--validation-fraction",
    "Share of the documents for validation.  [default: 0.005; of small corpora up to 30 documents, at most a tenth]",
    type=float,
)
@setting(
    TextConfig,
    "--group-field",
    "Field that names each record's group, such as a book; a group lies in one split.  [default: none]",
    metavar="NAME",
)
@setting(TextConfig, "--id-field", "Field with each record's id, for OUT/ids.  [default: none]", metavar="NAME")
@click.option(
    "--without-keys",
    type=PLACE,
    metavar="FILE",
    help="Leave out the documents in this list of keys (16 hex digits) or ids, one a line.",
)
@validation_option
@_build_setting("--keep-duplicates", "Keep all copies of equal documents, not only one.", is_flag=True)
@_build_setting(
    "--drop-near-duplicates", "Of similar documents keep one: of the first source, then the longest.", is_flag=True
)
@_build_setting("--similarity", "Least Jaccard similarity of similar documents, by shingles of five words.")
@_build_setting("--num-shards", "Number of training shards.  [default: one per 32 MiB, at most 40000]", type=int)
@_build_setting("--compression", "Compression of the shards.", type=click.Choice(COMPRESSIONS))
@_example_setting("--seed", "Seed of all random choices.")
@text_options
@allow_loss_option
@engine_options
@click.option(
    "--license",
    metavar="TEXT",
    help="Licence of the text, for the dataset card: an id such as cc0-1.0, or words.",
)
@click.option("--overwrite", is_flag=True, help="Replace another build in OUT, once this one is finished.")
@click.option(
    "--trust-inputs",
    is_flag=True,
    help="Accept inputs that differ from those of OUT only in time or name.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the inputs, the settings and an estimate of tokens and disk, and stop.",
)
@json_option
def build(inputs: tuple[str, ...], output: Path, dry_run: bool, as_json: bool, **settings: Any) -> None:
    """Turn text into ALBERT pretraining shards.

    INPUT is a file, a folder, a glob in quotes, @FILE with a path on each line, or - for stdin. Readable are .txt, .md,
    .jsonl, .json, .csv, .tsv, also compressed, .parquet, .arrow, folders of datasets and the output of WikiExtractor.
    INPUT:de is German text. A single .toml file is a mixture of sources, each with a weight.

    The shards depend only on the documents, the tokenizer and the settings, not on workers, files or their order. After
    an interruption, the same command resumes the build.

    \b
    Example:
      albert-data build corpus/ --tokenizer vocab -o shards
      my-program | albert-data build - --tokenizer vocab -o shards
    """
    from albert_data.cli.summary import describe_build
    from albert_data.library.building import build

    if dry_run:
        _show_plan(inputs, output, take_given(settings), as_json=as_json)
        return
    say_when_interrupted("Interrupted; the same command resumes the build.")
    with open_engine(settings) as given:
        report = build(inputs, output, progress=True, **given)
    if as_json:
        show_json(report.to_dict())
    else:
        show(*describe_build(report, output), fits=True)


def _show_plan(inputs: tuple[str, ...], output: Path, given: dict[str, Any], *, as_json: bool) -> None:
    from albert_data.cli.summary import describe_build, describe_estimate, describe_plan, plan_to_dict
    from albert_data.config import VocabConfig
    from albert_data.jobs.engine import MultiprocessEngine, count_cores
    from albert_data.library.building import load_arguments
    from albert_data.library.progress import Bar
    from albert_data.pipeline.build import build_shards
    from albert_data.pipeline.estimate import estimate_build
    from albert_data.pipeline.plan import choose_fraction

    bar, workers = Bar(), given.pop("workers", None) or count_cores()
    named: dict[str, Any] = {
        name: given[name] for name in ("license", "overwrite", "trust_inputs", "without_keys") if name in given
    }
    for name in ("engine", "address", "license", "trust_inputs", "without_keys"):  # no part of the plan
        given.pop(name, None)
    named["vocab"] = VocabConfig(normalization=given.get("normalization", "none"))
    with load_arguments(inputs, output, bar, **given) as (found, tokenizer, config):
        chosen, engine = choose_fraction(found, config), MultiprocessEngine(workers)
        finished = build_shards(found, output, tokenizer, config, engine, bar, dry_run=True, **named)
        if finished and not as_json:
            show(*describe_build(finished, output))
            return
        if not as_json:  # before the estimate, which takes a second
            show(*describe_plan(found, output, tokenizer, chosen))
        estimated = None if tokenizer is None else estimate_build(found, tokenizer, config, bar)
        if as_json:
            show_json(plan_to_dict(found, tokenizer, chosen, estimated))
        elif tokenizer is None:
            show("estimate   needs a tokenizer: train one with `albert-data vocab`, and give it by --tokenizer")
        else:
            show(*describe_estimate(estimated, found, output, config))
