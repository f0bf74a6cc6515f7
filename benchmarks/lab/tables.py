"""The tables of the laboratory: which rows each has, what is measured of them, and what the paper found.

A row differs from the others of its table in the options of `build`, the settings of `train` or the shape of the model,
and in nothing else. The paper is ALBERT's (Lan et al. 2020, arXiv:1909.11942); its figures are of models of hundreds of
thousands of updates, so only their order is to be compared.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from albert_data.config import ExampleConfig
from albert_data.train.config import MODEL_PRESETS, AlbertConfig

MLM, PROBE = "mlm", "probe"
SPEED, MEMORY, EXECUTED = "tokens a second", "bytes", "executed parameters"  # of a model that is not trained (costs.py)
STATIC = {"remask": False, "mask_prob": None, "last_mask_prob": None}


def name_options(build: dict[str, Any]) -> list[str]:
    """The options of a build that are not the defaults."""
    return [f"{name}={value}" for name, value in sorted(build.items()) if value != getattr(ExampleConfig(), name)]


class Unit(NamedTuple):
    """How figures are shown: times `scale`, with so many digits. difference: the unit of the difference of two."""

    scale: float
    digits: int
    difference: str


UNITS = {
    "%": Unit(100, 2, "points"),
    "tokens/s": Unit(1, 0, "tokens/s"),
    "GB": Unit(1e-9, 1, "GB"),
    "M": Unit(1e-6, 1, "M"),
}


class Measure(NamedTuple):
    """A column. kind: MLM, the share of masked tokens of validation rows that are predicted; PROBE, that of labels
    of a sentence task that a classifier on the frozen [CLS] gets right; or SPEED, MEMORY, EXECUTED. build: the options
    of the shards that it is measured on; None for those of the row. unit: a key of UNITS."""

    name: str
    kind: str
    build: dict[str, Any] | None = None
    unit: str = "%"

    def key(self, row: Row) -> str:
        """The kind and the options of the shards that a row is measured on: the same for equal measures."""
        given = row.build if self.build is None else self.build
        return ",".join([self.kind, *name_options(given)])


class Claim(NamedTuple):
    """What the paper found: one row is better than another in a measure."""

    better: str
    worse: str
    measure: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model. build: ExampleConfig's settings; train: TrainConfig's; shape: AlbertConfig's. paper: its figures.

    before: of what other shape the model is for the first three quarters of its training; None for no other.
    trains: whether it is trained, or only the costs of an update are measured.
    """

    name: str
    build: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    shape: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] | None = None
    trains: bool = True
    paper: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows to compare. paper_columns: the heads of `Row.paper`; seeds: how many each row has unless asked.

    shows_layers: whether the page shows how far each layer moves the hidden states.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    measures: tuple[Measure, ...]
    claims: tuple[Claim, ...] = ()
    paper_columns: tuple[str, ...] = ()
    source: str = ""
    seeds: int = 1
    shows_layers: bool = False


_OWN = (Measure("MLM", MLM),)


def _shape_row(name: str, paper: tuple[str, ...] = (), **shape: Any) -> Row:
    return Row(name=name, shape=shape, paper=paper)


# The mean of the tasks by the size of the embeddings, table 3.
_PAPER_EMBEDDINGS = {
    "shared": {64: "79.0", 128: "80.1", 256: "79.6", 768: "79.8"},
    "not shared": {64: "81.3", 128: "81.7", 256: "81.8", 768: "82.3"},
}
# Parameters and speed of BERT and of ALBERT, table 2.
_PAPER_COSTS = {"base": (("108 M", "4.7"), ("12 M", "5.6")), "large": (("334 M", "1.0"), ("18 M", "1.7"))}


def _full_shape(preset: AlbertConfig, *, is_bert: bool) -> dict[str, Any]:
    """All of a shape. BERT's embeddings have the size of its hidden states, and its layers share nothing."""
    bert = {"share": "none", "embedding_size": preset.hidden_size}
    return {**asdict(preset), **(bert if is_bert else {})}


def make_tables(shape: AlbertConfig) -> dict[str, Table]:
    """All tables by name. shape: of the model that the rows of shapes vary."""
    embedding, width, depth = shape.embedding_size, shape.hidden_size, shape.num_layers
    sizes = sorted({embedding // 2, embedding, embedding * 2, width})
    tables = (
        Table(
            name="sentence",
            title="Sentence task",
            rows=(
                Row(name="none", build={"pairs": "none"}, paper=("54.9", "52.4", "53.3", "79.0")),
                Row(name="nsp", build={"pairs": "nsp"}, paper=("54.5", "90.5", "52.0", "79.2")),
                Row(name="sop", build={"pairs": "sop"}, paper=("54.0", "78.9", "86.5", "80.1")),
            ),
            measures=(*_OWN, Measure("NSP", PROBE, {"pairs": "nsp"}), Measure("SOP", PROBE, {"pairs": "sop"})),
            claims=(Claim("nsp", "sop", "NSP"), Claim("sop", "nsp", "SOP"), Claim("sop", "none", "SOP")),
            paper_columns=("MLM", "NSP", "SOP", "tasks, mean"),
            source="table 5; each model is tested on all tasks",
            seeds=3,
        ),
        Table(
            name="masks",
            title="What is masked",
            rows=tuple(Row(name=law, build={"masking": law}) for law in ("ngram", "word", "token")),
            measures=tuple(Measure(f"MLM, {law}", MLM, {"masking": law}) for law in ("ngram", "word", "token")),
            claims=(Claim("ngram", "word", "MLM, ngram"), Claim("ngram", "token", "MLM, ngram")),
            source="the paper masks n-grams without comparing; SpanBERT (arXiv:1907.10529) finds spans better than "
            "words and tokens, on other tasks",
            seeds=3,
        ),
        Table(
            name="mask-rate",
            title="Share of masked tokens",
            rows=(
                *(
                    Row(name=f"{share:.0%}", train={"mask_prob": share, "last_mask_prob": share})
                    for share in (0.15, 0.3, 0.4)
                ),
                Row(name="15 %, static", train=STATIC),
            ),
            measures=_OWN,
            claims=(Claim("40%", "15%", "MLM"), Claim("15%", "15 %, static", "MLM")),
            source="Wettig et al. 2022 (arXiv:2202.08005): 40 % is better than 15 %, on other tasks; RoBERTa "
            "(arXiv:1907.11692): static masks, those of the build, are a little worse",
        ),
        Table(
            name="sharing",
            title="Shared parameters",
            rows=(
                *(
                    _shape_row(share, (paper,), share=share)
                    for share, paper in (("all", "80.1"), ("attention", "81.7"), ("ffn", "80.2"), ("none", "81.6"))
                ),
                _shape_row("2 groups", ("",), num_groups=2),
            ),
            measures=_OWN,
            claims=(
                Claim("none", "all", "MLM"),
                Claim("attention", "all", "MLM"),
                Claim("attention", "ffn", "MLM"),
                Claim("2 groups", "all", "MLM"),
            ),
            paper_columns=("tasks, mean",),
            source="table 4, E = 128, and section 4.5: groups of fewer layers, each of which shares all, are better; "
            "figure 1 compares the layers of models that share all and nothing",
            shows_layers=True,
        ),
        Table(
            name="embedding",
            title="Size of the embeddings",
            rows=tuple(
                _shape_row(
                    f"{size}, {name}", (_PAPER_EMBEDDINGS[name].get(size, ""),), embedding_size=size, share=share
                )
                for share, name in (("all", "shared"), ("none", "not shared"))
                for size in sizes
            ),
            measures=_OWN,
            claims=(
                *(Claim("128, shared", f"{size}, shared", "MLM") for size in sizes if 128 in sizes and size != 128),
                Claim(f"{max(sizes)}, not shared", f"{min(sizes)}, not shared", "MLM"),
            ),
            paper_columns=("tasks, mean",),
            source="table 3: with shared layers 128 is best, without sharing larger is better",
        ),
        Table(
            name="depth",
            title="Number of layers",
            rows=tuple(
                _shape_row(f"{n}", num_layers=n) for n in sorted({max(depth // 4, 1), depth // 2, depth, depth * 2})
            ),
            measures=_OWN,
            claims=(Claim(f"{depth}", f"{max(depth // 4, 1)}", "MLM"),),
            source="table 11: deeper is better up to 24 layers, and 48 are no better than 24",
        ),
        Table(
            name="width",
            title="Hidden size",
            rows=tuple(_shape_row(f"{n}", hidden_size=n, ffn_size=4 * n) for n in (width // 2, width, width * 2)),
            measures=_OWN,
            claims=(Claim(f"{width}", f"{width // 2}", "MLM"),),
            source="table 12: wider is better up to 4,096",
        ),
        Table(
            name="dropout",
            title="Dropout",
            rows=(
                *(_shape_row(f"{rate:g}", dropout=rate) for rate in (0.0, 0.1)),
                *(
                    Row(name=f"0.1, then {rate:g}", shape={"dropout": rate}, before={"dropout": 0.1})
                    for rate in (0.0, 0.1)
                ),
            ),
            measures=_OWN,
            claims=(Claim("0", "0.1", "MLM"), Claim("0.1, then 0", "0.1, then 0.1", "MLM")),
            source="section 4.8: without dropout late in the training the MLM accuracy is higher. "
            '"Then": for the last quarter, which begins with a new optimiser and schedule, so only these two rows are '
            "to be compared",
        ),
        Table(
            name="costs",
            title="Parameters, speed and memory",
            rows=tuple(
                Row(
                    name=f"{name} {size}",
                    shape=_full_shape(MODEL_PRESETS[size], is_bert=name == "BERT"),
                    paper=paper,
                    trains=False,
                )
                for size, papers in _PAPER_COSTS.items()
                for name, paper in zip(("BERT", "ALBERT"), papers, strict=True)
            ),
            measures=(
                Measure("executed", EXECUTED, unit="M"),
                Measure("speed", SPEED, unit="tokens/s"),
                Measure("memory", MEMORY, unit="GB"),
            ),
            claims=(Claim("ALBERT base", "BERT base", "speed"), Claim("ALBERT large", "BERT large", "speed")),
            paper_columns=("parameters", "speed"),
            source="table 2, speed against BERT large. Executed: each parameter as often as a pass uses it",
            seeds=3,
        ),
    )
    return {table.name: table for table in tables}
