"""The settings of a vocabulary and of a build. They are validated when an object is made.

Every default is here and nowhere else; the command line reads them from these classes.
"""

from __future__ import annotations

import codecs
import dataclasses
import operator
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeVar

from albert_data.corpus.conditions import Condition, join_where, parse_where
from albert_data.errors import ConfigError
from albert_data.examples.pair_tasks import PAIR_TASKS, PairTask
from albert_data.sentences.abbreviations import normalise_abbreviations
from albert_data.text.languages import normalise_language

Config = TypeVar("Config")
SENTENCE_RULES = ("prose", "lines")
DOCUMENT_RULES = BLANK_LINE, LINE, FILE = ("blank-line", "line", "file")
AUTO, NO_QUOTES, LONG_QUOTES = "auto", "none", "long"
QUOTING = (AUTO, NO_QUOTES, LONG_QUOTES)
FORMATS = (AUTO, "txt", "jsonl", "json", "csv", "tsv", "wiki", "parquet", "arrow")
AS_IS, NFC = "as-is", "nfc"
UNICODE_FORMS = (AS_IS, NFC)
COMPRESSIONS = ("none", "zstd", "lz4")
MODEL_TYPES = ("unigram", "bpe")  # of SentencePiece
NORMALIZATIONS = ("none", "albert-v2")  # of text before SentencePiece, see tokenizer/sentencepiece/albert.py
MASKING_LAWS = ("ngram", "span", "word", "token")
LONGEST_SPAN = 10  # of masking "span", as in SpanBERT
MIN_VALIDATION = 30  # documents: figures of fewer say little, so small corpora give a larger share
SPECIALS_PER_PAIR, SPECIALS_PER_SINGLE = 3, 2  # [CLS] A [SEP] B [SEP], and [CLS] A [SEP]
LATER = ("abbreviations", "id_field", "without_keys")  # settings that older manifests lack
MASK_PROB_RANGE = 0.01, 0.5


_KINDS: dict[str, tuple[type[Any] | tuple[type[Any], ...], str]] = {  # by the annotation of a field
    "bool": (bool, "True or False"),
    "int": (SupportsIndex, "a whole number"),
    "float": ((int, float), "a number"),
    "str": (str, "a str"),
}


def check_types(config: Any) -> None:
    """Raise ConfigError for a setting of another type than its field has: no manifest with it could be read again."""
    for field in dataclasses.fields(config):
        value = take_annotated(field.name, getattr(config, field.name), str(field.type))
        object.__setattr__(config, field.name, value)


def take_annotated(name: str, value: Any, annotation: str) -> Any:
    """As `take_value`, for an annotation such as `int | None`. A value of another kind of annotation is not checked."""
    kind, _, other = annotation.partition(" | ")
    is_checked = kind in _KINDS and other in ("", "None") and not (value is None and other)
    return take_value(name, value, kind) if is_checked else value


def take_value(name: str, value: Any, kind: str) -> Any:
    """A value of one of _KINDS; a whole number of another type, as of NumPy, as an int. Raises ConfigError.

    So does half of a surrogate pair in a str, as the shell makes of a byte that is no UTF-8: no manifest can hold it.
    """
    allowed, what = _KINDS[kind]
    with suppress(TypeError):  # of index
        if isinstance(value, allowed) and isinstance(value, bool) == (kind == "bool"):
            if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
                raise ConfigError(f"{name} is not valid UTF-8: {value!a:.80}; give it as the terminal shows it")
            return operator.index(value) if kind == "int" else value
    raise ConfigError(f"{name} is {value!r:.80}, of the type {type(value).__name__}; {what} is needed")


def check_range(name: str, value: float, low: float, high: float) -> None:
    if not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}; allowed are {low} to {high}")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}; allowed are {', '.join(allowed)}")


_DELIMITER_NAMES = {"tab": "\t", "\\t": "\t"}
_MAX_POINTS = 100  # in names of fields: each leads into an object
_SEPARATOR = re.compile("[^\n\r\x85\u2028\u2029]{1,256}")


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How documents and sentences are read from files.

    sentences: "prose" segments each line by the rules of `language`; "lines" takes a line as a sentence.
    language: an ISO 639 code; kept in its shortest form ("pt" for "pt-BR").
    text_field: the field of a record that holds the text, or several joined by commas; fields.py has the rule.
    strict: stop at the first damage. By default damage is repaired or skipped, and counted.
    document_rule: a document of a .txt file ends at a "blank-line", or with the "line" or the "file". A JSON line is
    always one document. Options, mixtures and manifests call it `documents`, which in Python are texts in memory.
    document_separator: a text that ends a document of a .txt file, in place of a blank line.
    unwrap: join the lines of hard-wrapped paragraphs.
    encoding: the encoding of all inputs, by any name that Python knows. None: each file is UTF-8, or it begins with the
    byte order mark of UTF-16 or UTF-32. AUTO: each file is read once more to find its encoding.
    language_field: the field that names the language of a record. None: all records are in `language`.
    group_field: the field that names the group of a record, as a string or a whole number. Documents of one group lie
    in one split.
    id_field: the field that holds the id of a record, a string or a whole number, for the table of ids of a build.
    drop_repeated_lines: remove lines that stand in so many distinct documents or more. None: remove none.
    where: conditions on fields that a record must meet, as corpus/conditions.py has them. None: all records are read.
    unicode: "as-is" leaves characters as they are, "nfc" composes them: then one text always has the same bytes.
    min_chars: leave out documents of fewer characters of canonical text, without its last line feed. None: read all.
    exclude: patterns of paths that are not read, joined by commas; corpus/inputs.py has the rule.
    delimiter: of the fields in .csv and .tsv, a character or "tab". AUTO: that of each file is found.
    quoting: of fields in .csv and .tsv: "auto"; "long", also over 64 line ends or 1 MiB of lines like rows; or "none".
    header: whether the first row of .csv and .tsv names the fields. Otherwise they are numbers from 1.
    format: that every input is read as, one of FORMATS. AUTO: the one that its name shows, or how it begins.
    abbreviations: beside those that are known, text with a language and an abbreviation on each line, as in "de bspw.".
    """

    sentences: str = "prose"
    language: str = "en"
    text_field: str = "text"
    strict: bool = False
    document_rule: str = BLANK_LINE
    document_separator: str | None = None
    unwrap: bool = False
    encoding: str | None = None
    language_field: str | None = None
    group_field: str | None = None
    id_field: str | None = None
    unicode: str = AS_IS
    drop_repeated_lines: int | None = None
    where: str | None = None
    min_chars: int | None = None
    exclude: str | None = None
    delimiter: str = AUTO
    quoting: str = AUTO
    header: bool = True
    format: str = AUTO
    abbreviations: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.where, list | tuple):  # in Python also several conditions, which must all hold
            object.__setattr__(self, "where", join_where(map(str, self.where)) or None)
        check_types(self)
        check_choice("format", self.format, FORMATS)
        check_choice("sentences", self.sentences, SENTENCE_RULES)
        check_choice("document_rule", self.document_rule, DOCUMENT_RULES)
        if (separator := self.document_separator) is not None:
            if (rule := self.document_rule) != BLANK_LINE:
                raise ConfigError(f"document_separator takes the place of documents={rule}; give one of them")
            if separator != separator.strip() or not _SEPARATOR.fullmatch(separator):
                raise ConfigError(
                    f"document_separator is {separator!r:.80}; allowed are 1 to 256 characters without line ends, and "
                    "without white space around them"
                )
        check_choice("unicode", self.unicode, UNICODE_FORMS)
        object.__setattr__(self, "language", normalise_language(self.language))
        if not all(name.strip() for name in self.text_field.split(",")):
            raise ConfigError(
                f"text_field is {self.text_field!r}; name the field that holds the text, or several joined by commas"
            )
        if self.language_field in ("", self.text_field):
            raise ConfigError(
                f"language_field is {self.language_field!r}; name the field that holds the language of a record"
            )
        for name, what in (("group_field", "group"), ("id_field", "id")):
            if getattr(self, name) == "":
                raise ConfigError(f"{name} is ''; name the field that holds the {what} of a record")
        compared = (condition.field for condition in self.conditions)
        named = (self.text_field, self.language_field, self.group_field, self.id_field, *compared)
        for field in filter(None, named):
            if any(name.count(".") > _MAX_POINTS for name in field.split(",")):
                raise ConfigError(f"the field {field!r:.80} has over {_MAX_POINTS} points; name another field")
        if self.drop_repeated_lines is not None:
            check_range("drop_repeated_lines", self.drop_repeated_lines, 2, 10**9)
        if self.min_chars is not None:
            check_range("min_chars", self.min_chars, 1, 10**9)
        if not all(pattern.strip("/") for pattern in self.exclusions):
            raise ConfigError(f"exclude is {self.exclude!r:.80}; give names or globs of paths, joined by commas")
        if self.encoding is not None:
            object.__setattr__(self, "encoding", _normalise_encoding(self.encoding))
        if self.abbreviations is not None:
            object.__setattr__(self, "abbreviations", normalise_abbreviations(self.abbreviations.encode()))
        check_choice("quoting", self.quoting, QUOTING)
        object.__setattr__(self, "delimiter", _DELIMITER_NAMES.get(self.delimiter, self.delimiter))
        if self.delimiter != AUTO and not re.fullmatch('[^"\r\n]', self.delimiter):
            raise ConfigError(
                f"delimiter is {self.delimiter!r:.80}; allowed are auto, tab and single characters such as ; , and |"
            )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Those of `where`. Raises ConfigError if it is none."""
        return parse_where(self.where).conditions

    @property
    def exclusions(self) -> tuple[str, ...]:
        return () if self.exclude is None else tuple(self.exclude.split(","))

    @property
    def ends_at_blank(self) -> bool:
        """Whether blank lines end the documents of .txt files."""
        return self.document_rule == BLANK_LINE and self.document_separator is None

    @property
    def divider(self) -> bytes | None:
        """The bytes that end a document inside a .txt file; None if a blank line does, or nothing."""
        divider = "\n" if self.document_rule == LINE else self.document_separator
        return divider.encode() if divider else None


DEFAULT_TEXT = TextConfig()


# Python counts these as text encodings, but two decode the escapes of Python's strings, and charmap needs a table.
_NO_ENCODINGS = ("unicode-escape", "raw-unicode-escape", "charmap")


def _normalise_encoding(name: str) -> str:
    """Return the name that Python's codecs have for a text encoding: "utf-8" for "UTF8". AUTO stays."""
    if name.lower() == AUTO:
        return AUTO
    try:
        codec = codecs.lookup(name).name
        b"a".decode(name, "replace")  # raises for codecs from bytes to bytes, such as zlib, and for idna
        # Files are decoded in parts, with damage escaped. Codecs that can't do that raise, such as punycode.
        codecs.getincrementaldecoder(name)("backslashreplace").decode(b"\xff\xfe\0\0a\xff", final=True)
        if codec in _NO_ENCODINGS:
            raise LookupError(codec)
        # The byte order mark that utf-8-sig drops is dropped from every UTF-8 file.
        return "utf-8" if codec == "utf-8-sig" else codec
    except (LookupError, ValueError) as error:
        raise ConfigError(
            f"encoding is {name!r}, which is no encoding of text that Python knows; "
            "allowed are auto and names such as utf-16-le, cp1252, gb18030, shift_jis or koi8-r"
        ) from error


@dataclass(frozen=True, kw_only=True)
class VocabConfig:
    """How a vocabulary is trained.

    model_type: "unigram" or "bpe" of SentencePiece.
    character_coverage: the share of all character occurrences in the corpus whose character gets a piece (the default
    is Google's for ALBERT).
    required_chars: characters that get a piece in any case, like printable ASCII.
    cased: keep capital letters. Otherwise text is made lower case.
    dummy_prefix: put a space before each sentence. None: do so unless most letters of the corpus are in scripts without
    spaces.
    sample_bytes: the largest amount of text, in bytes of UTF-8, that training uses; it bounds the memory.
    normalization: of the text, before SentencePiece's own. "albert-v2" is what Google's ALBERT code does.
    alpha, max_passes: of languages or sources of a mixture, the shares of that text by size. None: by a mixture's file.
    """

    vocab_size: int = 30_000
    model_type: str = "unigram"
    character_coverage: float = 0.99995
    required_chars: str = ""
    cased: bool = True
    dummy_prefix: bool | None = None
    sample_bytes: int = 64_000_000
    seed: int = 0
    normalization: str = "none"
    alpha: float | None = None
    max_passes: float = 4.0

    def __post_init__(self) -> None:
        check_types(self)
        BuildConfig(alpha=self.alpha, max_passes=self.max_passes)  # checks both
        check_range("max_passes", self.max_passes, 1, 1000)
        check_range("vocab_size", self.vocab_size, 16, 1_000_000)
        check_choice("model_type", self.model_type, MODEL_TYPES)
        check_range("character_coverage", self.character_coverage, 0.98, 1.0)
        check_range("sample_bytes", self.sample_bytes, 1_000, 4_000_000_000)
        check_range("seed", self.seed, 0, 2**63 - 1)
        check_choice("normalization", self.normalization, NORMALIZATIONS)

    def to_dict(self) -> dict[str, Any]:
        """The settings by name; without those that are not used, so that files of others stay as they were."""
        unused = {"normalization": "none", "alpha": None, "max_passes": VocabConfig.max_passes}.items()
        return {name: value for name, value in dataclasses.asdict(self).items() if (name, value) not in unused}


@dataclass(frozen=True, kw_only=True)
class ExampleConfig:
    """How tokenised documents become masked sentence pairs (ALBERT, sections 3.1 and 4.1).

    max_seq_len: tokens of a row, [CLS] and [SEP] included.
    pairs: the sentence task, which decides what the segments of a row are: see examples/pair_tasks.py.
    short_seq_prob: the share of rows that get a random, shorter length.
    masking: how long masked spans are. "ngram": n words with p(n) ~ 1/n, as in ALBERT; "span": 1 to 10 words with
    p(n) ~ 0.8**n, as in SpanBERT (Joshi et al. 2020, section 3.1); "word" and "token": one word or one piece, as in
    BERT with and without whole-word masking.
    ngram: the longest span of masking "ngram", in words.
    mask_prob: the share of a row's tokens, without the special ones, that are masked.
    replace: of the masked tokens, the percentages that become [MASK], a random piece, and stay: "80/10/10".
    whole_word: mask whole words. Otherwise each piece counts as a word.
    dupe_factor: the number of passes over the corpus, each with other pairs and masks.
    """

    max_seq_len: int = 512
    pairs: str = "sop"
    short_seq_prob: float = 0.1
    masking: str = "ngram"
    ngram: int = 3
    mask_prob: float = 0.15
    replace: str = "80/10/10"
    whole_word: bool = True
    dupe_factor: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_types(self)
        check_range("max_seq_len", self.max_seq_len, 8, 32_768)
        check_range("short_seq_prob", self.short_seq_prob, 0.0, 1.0)
        check_choice("pairs", self.pairs, tuple(PAIR_TASKS))
        check_choice("masking", self.masking, MASKING_LAWS)
        check_range("ngram", self.ngram, 1, 10)
        if self.masking != "ngram" and self.ngram != ExampleConfig.ngram:
            raise ConfigError(f"ngram is {self.ngram}, which masking {self.masking!r} does not use; leave one out")
        if self.masking == "word" and not self.whole_word:
            raise ConfigError("masking is 'word', but whole_word is off; masking 'token' masks single pieces")
        object.__setattr__(self, "replace", _normalise_shares(self.replace))
        check_range("mask_prob", self.mask_prob, *MASK_PROB_RANGE)
        check_range("dupe_factor", self.dupe_factor, 1, 1000)
        check_range("seed", self.seed, 0, 2**63 - 1)

    @property
    def longest_span(self) -> int:
        """The longest masked span, in words."""
        return {"ngram": self.ngram, "span": LONGEST_SPAN}.get(self.masking, 1)

    @property
    def span_gap(self) -> int:
        """Unmasked words after a masked span, at least. Single words and pieces may be neighbours, as in BERT."""
        return 0 if self.masking in ("word", "token") else 1

    @property
    def masks_words(self) -> bool:
        """Whether whole words are masked, not pieces."""
        return self.whole_word and self.masking != "token"

    @property
    def replace_shares(self) -> tuple[float, float, float]:
        """The shares of masked tokens that become [MASK], a random piece, and stay."""
        to_mask, random, kept = (float(part) / 100 for part in self.replace.split("/"))
        return to_mask, random, kept

    @property
    def max_tokens(self) -> int:
        """The largest number of tokens of text in a row."""
        return self.max_seq_len - (SPECIALS_PER_PAIR if self.task.orders else SPECIALS_PER_SINGLE)

    @property
    def task(self) -> PairTask:
        return PAIR_TASKS[self.pairs]


def _normalise_shares(text: str) -> str:
    """Three percentages in their shortest form: "80/10/10" for "80/10.0/10"."""
    try:
        shares = [float(part) for part in text.split("/")]
    except ValueError:
        shares = []
    if len(shares) != 3 or not all(share >= 0 for share in shares) or abs(sum(shares) - 100) > 1e-9:
        raise ConfigError(
            f"replace is {text!r}; give the percentages of [MASK], random pieces and kept ones, as 80/10/10"
        )
    return "/".join(f"{share:.12g}" for share in shares)


@dataclass(frozen=True, kw_only=True)
class BuildConfig:
    """Every setting that affects the bytes of a build, except the documents and the tokenizer.

    validation_fraction: the share of the documents that are drawn for validation, so that none changes its split when
    others are added. None: 0.005, of small corpora MIN_VALIDATION documents, but at most a tenth.
    num_shards: shards of the training split. None: it depends on the amount of data.
    compression: of the shards. Only uncompressed shards can be mapped into memory.
    keep_duplicates: keep all of several equal documents. By default one is kept.
    drop_near_duplicates: of documents whose `similarity` is at least that (0.5 to 1), keep one; see survey/.
    sample: use such a share of the documents, drawn by their keys, but all benchmarks and all that is for validation.
    without_keys: the SHA-256 of the keys and ids of documents to leave out, which a build finds by the file of them.
    alpha, max_passes: of languages that records or inputs name, the shares by size; None for the text as it is.
    """

    text: TextConfig = TextConfig()
    examples: ExampleConfig = ExampleConfig()
    validation_fraction: float | None = None
    num_shards: int | None = None
    compression: str = "none"
    keep_duplicates: bool = False
    drop_near_duplicates: bool = False
    similarity: float = 0.8
    sample: float | None = None
    without_keys: str | None = None
    alpha: float | None = None
    max_passes: float = VocabConfig.max_passes

    def __post_init__(self) -> None:
        check_types(self)
        check_range("validation_fraction", self.drawn_fraction, 0.0, 0.5)
        check_range("similarity", self.similarity, 0.5, 1.0)
        if self.sample is not None and not 0 < self.sample <= 1:
            raise ConfigError(f"sample is {self.sample!r}; allowed are shares above 0, up to 1")
        if self.alpha is not None:
            check_range("alpha", self.alpha, 0.0, 1.0)
        elif self.max_passes != BuildConfig.max_passes:
            raise ConfigError(f"max_passes is {self.max_passes:g}, which limits what alpha gives; give both")
        if self.text.group_field is not None and self.keep_duplicates:
            raise ConfigError("group_field puts all copies of a document into one group, so leave out keep_duplicates")
        if self.similarity != BuildConfig.similarity and not self.drop_near_duplicates:
            raise ConfigError(f"similarity is {self.similarity:g}, which only drop_near_duplicates uses; give both")
        if self.drop_near_duplicates and self.keep_duplicates:
            raise ConfigError("drop_near_duplicates drops copies too, so leave out keep_duplicates")
        if self.num_shards is not None:
            check_range("num_shards", self.num_shards, 1, 100_000)
        check_choice("compression", self.compression, COMPRESSIONS)

    @property
    def drawn_fraction(self) -> float:
        """The share of the documents that split keys draw for validation."""
        return 0.005 if self.validation_fraction is None else self.validation_fraction

    def to_flat_dict(self) -> dict[str, Any]:
        """Every setting by its own name, without those of LATER that are None. No two classes share a name."""
        flat = dataclasses.asdict(self)
        flat = {**swap_documents(flat.pop("text")), **flat.pop("examples"), **flat}
        return {name: value for name, value in flat.items() if name not in LATER or value is not None}

    @classmethod
    def from_settings(cls, base: BuildConfig | None = None, /, **settings: Any) -> BuildConfig:
        """The config of these settings, each by its own name; a missing one is that of `base`, or its default."""
        base = take_settings(cls, {}, base)
        text = take_settings(TextConfig, settings, base.text)
        examples = take_settings(ExampleConfig, settings, base.examples)
        return dataclasses.replace(base, text=text, examples=examples, **settings)


def swap_documents(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the name `document_rule` of Python as `documents`, which mixtures and manifests have; or back."""
    names = {"document_rule": "documents", "documents": "document_rule"}
    return {names.get(name, name): value for name, value in settings.items()}


def take_settings(kind: type[Config], settings: dict[str, Any], base: Config | None = None) -> Config:
    """Remove the settings of a class from `settings`, and make an object of them; the others are those of `base`."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    given = {name: settings.pop(name) for name in names if name in settings}
    return kind(**given) if base is None else dataclasses.replace(base, **given)  # type: ignore[type-var]
