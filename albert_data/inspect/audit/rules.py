"""The rules of the audit: for each check its limits, the reason for them, and what to do.

All thresholds are here; a test compares docs/reference/audit.md with this file.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

OK, LOOK, BAD, NOT_KNOWN = "ok", "look", "bad", "not known"
# Options that are on or off.
_SWITCHES = re.compile("--(drop-near-duplicates|drop-repeated-lines|group-field|keep-duplicates|language-field|unwrap)")
VERDICTS = (OK, NOT_KNOWN, LOOK, BAD)  # from best to worst


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One check. limits: the lowest figures that are look and bad; why: the reason for them.

    advice: clauses, divided by semicolons; `fit` leaves out those that name an option that is on.
    """

    name: str
    title: str
    limits: tuple[float, float]
    why: str
    advice: str

    def fit(self, options_on: Collection[str]) -> Rule:
        """The rule with the advice that is left for a build with these options on; "without" is for one that is."""
        clauses = [
            clause
            for clause in self.advice.split("; ")
            if all((name in options_on) == ("without" in clause) for name in _SWITCHES.findall(clause))
        ]
        return replace(self, advice="; ".join(clauses))


@dataclass(frozen=True)
class Check:
    """The result of a rule. figure: None where nothing could be measured; details: more figures, by stable names."""

    rule: Rule
    figure: float | None
    finding: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return NOT_KNOWN
        look, bad = self.rule.limits
        return BAD if self.figure >= bad else LOOK if self.figure >= look else OK

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
    why="the figure is what a guess gains over chance from the lengths of segments, and of their first and last "
    "sentences; 0 if within three standard errors. Faultless sets have up to 1.5 %. If rows are only filled from "
    "the front of each document, it is 3.8 %; if the sentence that did not fit into a row always begins or ends the "
    "next, 4.5 % and more",
    advice="a model can learn the label without reading: check how rows are filled, and where pairs are divided",
)
ORDER_FROM_SURFACE = Rule(
    name="order_from_surface",
    title="sentence order guessed from the surface of segments",
    limits=(0.06, 0.1),
    why="the figure is what a guess gains over chance from how segments begin and end; 0 if within three standard "
    "errors. Faultless sets of books and Chinese classics have 0 to 4 %: who speaks, how chapters open. With a "
    "quarter of the pairs cut inside a sentence it is 12 to 15 %",
    advice="see the strongest sign: it names what a model can learn without reading",
)
ORDER_FROM_FRAGMENTS = Rule(
    name="order_from_fragments",
    title="sentence order guessed from incomplete sentences",
    limits=(0.01, 0.04),
    why="the figure is what a guess gains from lower case at the beginning, stops at the end, and brackets alone. "
    "It is always a fault, and under 0.1 % in books",
    advice="segments begin or end inside sentences, or headings are segments: check the pairs, and whether "
    "--language is that of the text",
)
LABELS_AGAINST_QUOTES = Rule(
    name="labels_against_quotes",
    title="labels compared with quotation marks",
    limits=(0.4, 0.47),
    why="the segment that leaves a quotation or bracket open usually comes before the one that closes it. The figure "
    "is the share of pairs whose label says the opposite, less two standard errors. In books it is 19 to 30 %, as "
    "a long speech may begin before a row; with random labels it is a half, with inverted ones more",
    advice="labels do not say which segment comes first: check the program that wrote them",
)
LABEL_SHARES = Rule(
    name="label_shares",
    title="shares of the labels",
    limits=(0.05, 0.15),
    why="the figure is the largest difference from an equal share; 0 if within three standard errors. Rows that find "
    "no other document keep their own B, so a corpus of few documents has fewer random ones",
    advice="build from more documents; check the program that wrote the labels, if it is not albert-data",
)
RANDOM_FROM_LENGTHS = Rule(
    name="random_from_lengths",
    title="random segments guessed from segment lengths",
    limits=(0.02, 0.05),
    why="the figure is what a guess fitted on lengths gains over chance, the larger share. It is 0 in faultless sets: "
    "segments of nearly equal length change places",
    advice="a model can learn the label without reading; check how segments were exchanged",
)
EQUAL_SEGMENTS = Rule(
    name="equal_segments",
    title="pairs whose segments are equal",
    limits=(0.001, 0.01),
    why="their label is noise; prose has none, lists and refrains have a few",
    advice="drop repeated lines and sentences from the corpus",
)
SHARED_DOCUMENTS = Rule(
    name="shared_documents",
    title="documents in both training and validation",
    limits=(1, 1),
    why="a build puts equal documents into one split, so a single one is a fault",
    advice="build anew; the shards of several builds were mixed, or edited",
)
SEEN_ROWS = Rule(
    name="seen_rows",
    title="validation rows whose text stands in training",
    limits=(0.002, 0.01),
    why="such a row is learnt by heart, so it measures nothing, and its loss falls while that of new text does not. "
    "Whole books held out have none; one row in a hundred is a document that was given twice",
    advice="build with --drop-near-duplicates; build with --group-field if documents of one group, such as the "
    "chapters of a book, share text; give --validation text from elsewhere",
)
DUPLICATE_DOCUMENTS = Rule(
    name="duplicate_documents",
    title="documents given more than once",
    limits=(0.005, 0.05),
    why="a few copies do little harm; one in twenty means that a file was read twice",
    advice="build without --keep-duplicates; build anew if an older version of albert-data made the shards; look "
    "for a file with two names",
)
DUPLICATE_ROWS = Rule(
    name="duplicate_rows",
    title="rows whose text another document has too",
    limits=(0.005, 0.05),
    why="near copies share some of their rows; prose has none",
    advice="deduplicate the corpus by passages; near copies differ in a line or two",
)
NEAR_DUPLICATES = Rule(
    name="near_duplicates",
    title="documents similar to another one of the corpus",
    limits=(0.01, 0.1),
    why="similar are documents that share four in five of their shingles of five words. Chapters of books have none; "
    "what is crawled or collected by several people has copies with another header or footer",
    advice="build with --drop-near-duplicates; drop more by a lower --similarity",
)
NEAR_EMPTY_ROWS = Rule(
    name="near_empty_rows",
    title="near-empty rows, more than short_seq_prob asks for",
    limits=(0.02, 0.1),
    why="counted are rows with under a sixteenth of the possible tokens, less the short_seq_prob / 16 that are so by "
    "design. The last row of a document has what is left: with three rows a document 2 % of all rows are "
    "near-empty",
    advice="documents are short for this length: join them, drop the shortest, or build with a smaller --max-seq-len",
)
UNPAIRED_ROWS = Rule(
    name="unpaired_rows",
    title="rows without a pair",
    limits=(0.25, 0.5),
    why="a row that can hold only one sentence teaches no order: 12 % of books at 128 tokens, fewer in longer rows. "
    "More than a quarter means documents of one sentence, or sentences that are long for this length",
    advice="check whether each line was read as a document; build with a larger --max-seq-len",
)
SEGMENTS_INSIDE_WORD = Rule(
    name="segments_inside_word",
    title="segments that begin inside a word",
    limits=(0.005, 0.03),
    why="a sentence longer than a row is cut between words; only a word longer than a row is cut inside. What follows "
    "an apostrophe, or a dash that is not in the row, is counted too",
    advice="look for base64, hashes and lines without spaces, and drop them; or the tokenizer is for another script",
)
UNKNOWN_RATE = Rule(
    name="unknown_rate",
    title="unknown tokens",
    limits=(0.005, 0.02),
    why="the text that they stand for is lost. A vocabulary of 99.995 % coverage leaves 0.02 % of the tokens of books "
    "unknown",
    advice="train the vocabulary on this corpus, with a higher --character-coverage, or drop what is of another script",
)
UNKNOWN_BY_FILE = Rule(
    name="unknown_by_source",  # names are stable: this one is older than the word "file"
    title="unknown tokens of the worst file or source",
    limits=(0.02, 0.1),
    why="it finds a file in another script or of broken text, even if it is a small part of the whole",
    advice="check that file: another language, another encoding, or tables and code",
)
SPECIAL_PIECES = Rule(
    name="special_pieces",
    title="rows with special pieces inside segments",
    limits=(1, 1),
    why="text never gives one: a model takes it for a boundary, padding or a mask. So a single one is a fault",
    advice="build anew; an older version of albert-data read them from text that spells them, or rows were edited",
)
BYTE_PIECES = Rule(
    name="byte_pieces",
    title="tokens that spell parts of characters",
    limits=(0.05, 0.25),
    why="no text is lost in byte pieces, but characters without a piece take two to four tokens, and masks hide parts "
    "of them. A vocabulary made of the same text has up to 3 % of such tokens, one of another script 79 % and "
    "more",
    advice="train the vocabulary on this corpus, or choose a tokenizer for its scripts",
)
LARGEST_DOCUMENT = Rule(
    name="largest_document",
    title="share of the largest document",
    limits=(0.1, 0.5),
    why="a tenth of all tokens is a lot for one document; half of them usually means a file read as one document",
    advice="check that documents are separated: in .txt by a blank line or by file (--documents), in .jsonl by line",
)
LARGEST_FILE = Rule(
    name="largest_source",  # stable, too
    title="share of the largest file or source",
    limits=(0.8, 0.95),
    why="of two equal files each has a half; if one has four fifths, the others hardly count",
    advice="balance the files: take a part of the largest, or more of the others",
)
BOILERPLATE = Rule(
    name="boilerplate",
    title="text that occurs in many documents",
    limits=(0.01, 0.05),
    why="counted are windows of 12 tokens in at least 1 % of the documents, and at least five; idioms are shorter",
    advice="drop lines that repeat across documents (headers, licences, navigation): --drop-repeated-lines 20; cut the "
    "rest out of the text",
)
REPEATED_LINES = Rule(
    name="repeated_lines",
    title="rows with short lines of many documents",
    limits=(0.01, 0.5),
    why="counted are rows with four words in a row that stand in 20 documents or more and hardly ever have another "
    "first or last word: those of a footer. English books, newspapers and charters have none",
    advice="if the examples are parts of headers or footers, build with --drop-repeated-lines 20; cut the rest out of "
    "the text",
)
PAGE_FURNITURE = Rule(
    name="page_furniture",
    title="rows with page numbers or running heads inside sentences",
    limits=(0.002, 0.02),
    why="counted is a number with words in capitals, or between dashes, that interrupts lower-case text. English "
    "books have none. Heads without a number or in small letters are not seen",
    advice="read books with their pages by --documents file --unwrap, which removes both; cut the rest out of the text",
)
NUMBER_TABLES = Rule(
    name="number_tables",
    title="rows that are tables of numbers",
    limits=(0.01, 0.05),
    why="counted are rows of which half of the words hold digits: what is masked can't be guessed from the rest. "
    "English books have none",
    advice="leave tables, logs and lists of figures out of the corpus",
)
OTHER_SCRIPTS = Rule(
    name="other_scripts",
    title="rows in a script that the rest hardly uses",
    limits=(0.001, 0.5),
    why="counted are rows whose letters are mostly of scripts that, in the row's source, have under a twentieth of "
    "the letters of the most frequent one. English books and Chinese classics have none",
    advice="leave the files of other languages out; name the languages with --language-field if they are intended",
)
MISREAD_WORDS = Rule(
    name="misread_words",
    title="rows with misread words (OCR), symbols inside words or encoded data",
    limits=(0.01, 0.25),
    why="counted are rows of which one word in a hundred, and at least two, look misread. By chance up to 0.8 % of "
    "the rows do. Of real scans in which a tenth of the words is wrong, a sixth of the rows is found, so 1 % "
    "means that more text is affected",
    advice="leave out text of scanned pages, or correct it; see the examples, and the encoding of their files",
)
LOST_CHARACTERS = Rule(
    name="lost_characters",
    title="characters that the tokenizer loses",
    limits=(0.002, 0.02),
    why="a vocabulary of 99.995 % coverage leaves out 0.005 %; normalisation should lose none",
    advice="train the vocabulary without a normalisation that strips them, or with a higher --character-coverage",
)
