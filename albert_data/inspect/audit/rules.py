"""The rules of the audit: for each check its limits and their reason, and what to do.

All thresholds are here; `make docs` writes them and the reasons into docs/reference/audit.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from albert_data.text.wording import count_of, format_share

OK, LOOK, BAD, NOT_KNOWN = "ok", "look", "bad", "not known"
_SWITCHES = re.compile("--(drop-near-duplicates|drop-repeated-lines|group-field|keep-duplicates|language-field|unwrap)")
VERDICTS = (OK, NOT_KNOWN, LOOK, BAD)  # from best to worst


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One check. limits: the lowest figures that are look and bad; reason: sentences for the documentation."""

    name: str
    title: str
    limits: tuple[float, float]
    reason: str
    advice: str  # clauses, divided by semicolons; `fit` leaves out those that name an option that is on

    def fit(self, options_on: Collection[str]) -> Rule:
        """The rule with the advice that is left for a build with these options on; "without" is for one that is."""

        def is_left(clause: str) -> bool:
            return all((name in options_on) == ("without" in clause) for name in _SWITCHES.findall(clause))

        return replace(self, advice="; ".join(filter(is_left, self.advice.split("; "))))

    def judge(self, figure: float) -> str:
        look, bad = self.limits
        return BAD if figure >= bad else LOOK if figure >= look else OK


@dataclass(frozen=True)
class Check:
    """The result of a rule. figure: None where nothing could be measured; details: more figures, by stable names."""

    rule: Rule
    figure: float | None
    finding: str
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_share(cls, rule: Rule, part: int, whole: int, noun: str, *more: str, **details: Any) -> Check:
        """A check whose figure is a share: `part` of `whole` things. more: parts of the finding."""
        share = part / whole if whole else 0.0
        finding = "; ".join([f"{format_share(share)}, {part:,} of {count_of(whole, noun)}", *more])
        return cls(rule, share, finding, {"count": part, "of": whole, **details})

    @property
    def verdict(self) -> str:
        return NOT_KNOWN if self.figure is None else self.rule.judge(self.figure)

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.rule.title,
            "verdict": self.verdict,
            "figure": self.figure,
            **dict(zip(("look", "bad"), self.rule.limits, strict=True)),
            "finding": self.finding,
            "advice": self.rule.advice if self.verdict in (LOOK, BAD) else None,
            "details": self.details,
        }


ORDER_FROM_LENGTHS = Rule(
    name="order_from_lengths",
    title="sentence order guessed from lengths",
    limits=(0.03, 0.05),
    reason="Faultless sets have up to 1.5 %. If rows are filled only from the front of each document, it is 3.8 %.",
    advice="a model can learn the label without reading: check how rows are filled, and where pairs are divided",
)
ORDER_FROM_SURFACE = Rule(
    name="order_from_surface",
    title="sentence order guessed from the surface of segments",
    limits=(0.06, 0.1),
    reason="Faultless sets have up to 4 %, by style. If a quarter of the pairs is cut inside sentences, 12 to 15 %.",
    advice="read the example of the strongest sign: a style needs nothing; build with --unwrap if it cuts sentences",
)
ORDER_FROM_FRAGMENTS = Rule(
    name="order_from_fragments",
    title="sentence order guessed from incomplete sentences",
    limits=(0.01, 0.04),
    reason="Signs are lower case at the start, stops at the end, and brackets. Always a fault; books have under 0.1 %.",
    advice="segments begin or end inside sentences, or headings are segments: check the pairs, and --language",
)
LABEL_SHARES = Rule(
    name="label_shares",
    title="shares of the labels",
    limits=(0.05, 0.15),
    reason="The largest difference from equal shares; 0 if it may be chance. Few documents give too few random B.",
    advice="build from more documents; check the program that wrote the labels, if it is not albert-data",
)
EQUAL_SEGMENTS = Rule(
    name="equal_segments",
    title="pairs whose segments are equal",
    limits=(0.001, 0.01),
    reason="Their label is noise. Prose has none, lists and refrains have a few.",
    advice="drop repeated lines and sentences from the corpus",
)
DUPLICATE_DOCUMENTS = Rule(
    name="duplicate_documents",
    title="documents given more than once",
    limits=(0.005, 0.05),
    reason="Each of their rows occurs again, masks included. One in twenty means that a file was read twice.",
    advice="build without --keep-duplicates; rebuild shards of an older version; look for a file with two names",
)
DUPLICATE_ROWS = Rule(
    name="duplicate_rows",
    title="rows whose text another document has too",
    limits=(0.005, 0.05),
    reason="Text is compared in the order of the document. Near copies share some rows; prose has none.",
    advice="deduplicate the corpus by passages",
)
NEAR_DUPLICATES = Rule(
    name="near_duplicates",
    title="documents similar to another one of the corpus",
    limits=(0.01, 0.1),
    reason="They share four in five of their shingles of five words. Chapters of books have none.",
    advice="build with --drop-near-duplicates; drop more by a lower --similarity",
)
SEEN_ROWS = Rule(
    name="seen_rows",
    title="validation rows whose text stands in training",
    limits=(0.002, 0.01),
    reason="They are learnt by heart, so they measure nothing. Whole books held out have none.",
    advice="build with --drop-near-duplicates; build with --group-field if documents of one group, such as the "
    "chapters of a book, share text; give --validation text from elsewhere",
)
NEAR_EMPTY_ROWS = Rule(
    name="near_empty_rows",
    title="near-empty rows, more than short_seq_prob asks for",
    limits=(0.02, 0.1),
    reason="They have under a sixteenth of the possible tokens, with `--pairs none` at most under 16. With three rows "
    "a document, 2 % of all are near-empty.",
    advice="documents are short for this length: join them, drop the shortest, or build with a smaller --max-seq-len",
)
UNPAIRED_ROWS = Rule(
    name="unpaired_rows",
    title="rows without a pair",
    limits=(0.25, 0.5),
    reason="A row that holds one sentence teaches no order. Books have 12 % at 128 tokens, fewer in longer rows.",
    advice="check whether each line was read as a document, and whether stops end the sentences of the language, or "
    "lines do (--sentences lines); build with a larger --max-seq-len",
)
ROWS_WITHOUT_TASK = Rule(
    name="rows_without_task",
    title="rows with neither masks nor a pair",
    limits=(0.02, 0.1),
    reason="Nothing is predicted in them. Their documents have a few tokens, and 15 % of a few is less than one.",
    advice="join documents of a few tokens, or leave them out by --min-chars",
)
SEGMENTS_INSIDE_WORD = Rule(
    name="segments_inside_word",
    title="segments that begin inside a word",
    limits=(0.005, 0.03),
    reason="Sentences longer than a row are cut between words; only a word longer than a row is cut inside.",
    advice="look for base64, hashes and lines without spaces, and drop them; or the tokenizer is for another script",
)
UNKNOWN_RATE = Rule(
    name="unknown_rate",
    title="unknown tokens",
    limits=(0.005, 0.02),
    reason="Their text is lost. A vocabulary of 99.995 % coverage leaves 0.02 % of the tokens of books unknown.",
    advice="train the vocabulary on this corpus, with a higher --character-coverage, or leave out what is of another "
    "script or encoding, tables and code",
)
BYTE_PIECES = Rule(
    name="byte_pieces",
    title="tokens that spell parts of characters",
    limits=(0.05, 0.25),
    reason="A character takes two to four. A vocabulary of the same text gives up to 3 %, one of another script 79 %.",
    advice="train the vocabulary on this corpus, or choose a tokenizer for its scripts",
)
LOST_CHARACTERS = Rule(
    name="lost_characters",
    title="characters that the tokenizer loses",
    limits=(0.002, 0.02),
    reason="They are removed, lose marks (é to e) or have no piece. A coverage of 99.995 % leaves out 0.005 %.",
    advice="train the vocabulary without a normalisation that strips them, or with a higher --character-coverage",
)
LARGEST_DOCUMENT = Rule(
    name="largest_document",
    title="share of the largest document",
    limits=(0.1, 0.5),
    reason="A tenth is a lot for one document. Half usually means that a file was read as one.",
    advice="check that documents are separated: in .txt by a blank line, a line or a file (--documents) or by a text "
    "(--document-separator), in .jsonl by line",
)
LARGEST_SOURCE = Rule(
    name="largest_source",
    title="share of the largest source",
    limits=(0.8, 0.95),
    reason="Of two equal sources each has half. If one has four fifths, the others hardly count.",
    advice="balance the sources: take a part of the largest, or more of the others",
)
REPEATED_LINES = Rule(
    name="repeated_lines",
    title="rows with short lines of many documents",
    limits=(0.01, 0.5),
    reason="They hold four words that stand together in 20 documents or more, and hardly ever apart.",
    advice="if the examples are of headers or footers, build with --drop-repeated-lines 20; cut out the rest",
)
DOCUMENT_SEPARATORS = Rule(
    name="document_separators",
    title="rows with a marker between documents",
    limits=(0.0005, 0.02),
    reason="`<|endoftext|>`, `<eos>`, `</s>` and the like. Such a row mostly has text of two documents.",
    advice="build with --document-separator and the marker",
)
PAGE_FURNITURE = Rule(
    name="page_furniture",
    title="rows with page numbers or running heads inside sentences",
    limits=(0.002, 0.02),
    reason="A number beside words in capitals, or between dashes, interrupts text in lower case.",
    advice="read books with their pages by --documents file --unwrap, which removes both; cut the rest out of the text",
)
NUMBER_TABLES = Rule(
    name="number_tables",
    title="rows that are tables of numbers",
    limits=(0.01, 0.05),
    reason="Half of their words hold digits: what is masked can't be guessed from the rest.",
    advice="leave tables, logs and lists of figures out of the corpus",
)
OTHER_SCRIPTS = Rule(
    name="other_scripts",
    title="rows in a script that the rest hardly uses",
    limits=(0.001, 0.5),
    reason="Most of their letters are of scripts with under a twentieth of the letters of their source's main script.",
    advice="leave the files of other languages out; name the languages with --language-field if they are intended",
)
MISREAD_WORDS = Rule(
    name="misread_words",
    title="rows with misread words (OCR), symbols inside words or encoded data",
    limits=(0.01, 0.25),
    reason="One word in a hundred, and at least two, look misread. By chance up to 0.8 % of the rows are counted.",
    advice="leave out text of scanned pages, or correct it; see the examples, and the encoding of their files",
)

NAMES = tuple(rule.name for rule in list(vars().values()) if isinstance(rule, Rule))
