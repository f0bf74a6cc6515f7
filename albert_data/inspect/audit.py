"""What makes a pretraining set bad, looked for in its shards, and in its corpus where that is given.

In: a finished shard folder. Out: checks, each with a figure, a verdict and what to do; audit_rules.py holds
their limits. Nothing that a build noted down is trusted. What shards can't tell is "not known", not guessed.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from albert_data.config import TextConfig
from albert_data.corpus.inputs import Input
from albert_data.errors import InputError
from albert_data.inspect import audit_rules as rules
from albert_data.inspect.audit_corpus import Corpus, find_lost, read_corpus
from albert_data.inspect.audit_order import guess_order
from albert_data.inspect.audit_rows import (
    WINDOW,
    RowFacts,
    choose_documents,
    gather_facts,
    gather_windows,
    join_facts,
    make_traits,
)
from albert_data.inspect.audit_rules import Check, Rule
from albert_data.inspect.manifest_keys import read_checked_manifest, read_example_config
from albert_data.inspect.terminal import count_noun, escape_controls
from albert_data.shards.manifest import SPLITS
from albert_data.shards.reader import Shards, open_shards
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.proto import read_settings

WIDTH = 80
MANY_DOCUMENTS, MANY_SHARE = 5, 0.01  # documents that a run of tokens must stand in to be boilerplate
EMPTY_PART, EMPTY_TOKENS = 16, 4  # a near-empty row has under a sixteenth of the room, or under four tokens
_UNKNOWN_DOCUMENT = 0.05
_SHOWN = 5
_CHANCE, _ERRORS = 0.5, 3
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
_APOSTROPHES = ("'", "\u2019")  # punctuation, yet inside a word
_NEEDS_CORPUS = "shards don't say which file a row is from; give the build's inputs with --corpus"


@dataclass(frozen=True, kw_only=True)
class Audit:
    """All checks of a folder, in the order of a reader's interest."""

    folder: Path
    checks: list[Check]

    def count(self, verdict: str) -> int:
        return sum(check.verdict == verdict for check in self.checks)

    def to_text(self) -> str:
        """A page of at most 80 columns."""
        counts = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in rules.VERDICTS)
        lines = textwrap.wrap(escape_controls(f"{self.folder}: {counts}"), WIDTH)
        for check in self.checks:
            lines += ["", f"{check.verdict:9}  {check.rule.title}"]
            lines += _indent(check.finding)
            if check.verdict in (rules.LOOK, rules.BAD):
                lines += _indent(f"To do: {check.rule.advice}.")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON, by stable names."""
        return {
            "folder": str(self.folder),
            "verdicts": {verdict.replace(" ", "_"): self.count(verdict) for verdict in rules.VERDICTS},
            "checks": {check.rule.name: check.to_dict() for check in self.checks},
        }


def _indent(text: str) -> list[str]:
    return textwrap.wrap(escape_controls(text), WIDTH, initial_indent=" " * 11, subsequent_indent=" " * 11)


def audit_folder(folder: Path, corpus: list[Input] | None = None) -> Audit:
    """Audit every split. corpus: the inputs of the build, for what the shards can't tell.

    Raises ShardError if the folder is no finished build, and InputError for a corpus that can't be read, or that
    has no document of the shards.
    """
    manifest = read_checked_manifest(folder)
    opened = [open_shards(folder, name) for name in SPLITS if name in manifest["splits"]]
    opened = [shards for shards in opened if len(shards) > 0]
    if not opened:
        return Audit(folder=folder, checks=[])
    subject = _gather(opened)
    checks = [*_check_pairs(subject), *_check_copies(subject), *_check_text(subject)]
    read = None if corpus is None else read_corpus(corpus, _read_text_config(manifest))
    checks += [*_check_sources(subject, read), _check_characters(subject, read)]
    return Audit(folder=folder, checks=checks)


def _read_text_config(manifest: Mapping[str, Any]) -> TextConfig:
    return TextConfig(text_field=manifest["config"].get("text_field", TextConfig().text_field))


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """What the checks look at. facts: of all splits, one after another; begins: the first row of each split.

    documents: uint64, sorted, all keys; owners: int64, the place of each row's document in them.
    """

    shards: list[Shards]
    begins: list[int]
    facts: RowFacts
    documents: np.ndarray
    owners: np.ndarray
    has_prefix: bool

    @property
    def tokenizer(self) -> Tokenizer:
        return self.shards[0].tokenizer

    def add_by_document(self, values: np.ndarray) -> np.ndarray:
        """Sums over the rows of each document: float64."""
        summed: np.ndarray = np.bincount(self.owners, values, len(self.documents))
        return summed


def _gather(opened: list[Shards]) -> _Subject:
    tokenizer = opened[0].tokenizer
    words, pieces = tokenizer.word_rule, tokenizer.pieces
    is_byte = np.array([_BYTE_PIECE.fullmatch(piece) is not None for piece in pieces])
    is_unknown = is_byte.copy()
    is_unknown[tokenizer.unk_id] = True
    starts_inside = ~(words.starts | words.standalone | tokenizer.specials.is_special | is_unknown)
    is_apostrophe = np.array([piece in _APOSTROPHES for piece in pieces])
    traits = make_traits(starts_inside, is_unknown, words.standalone & ~is_apostrophe)
    parts = [gather_facts(shards, traits) for shards in opened]
    begins = np.cumsum([0, *map(len, parts)]).tolist()
    facts = join_facts(parts)
    documents, owners = np.unique(facts.keys, return_inverse=True)
    has_prefix = read_settings(tokenizer.model).add_dummy_prefix
    return _Subject(
        shards=opened, begins=begins, facts=facts, documents=documents, owners=owners, has_prefix=has_prefix
    )


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:,.2f} %"


def _check_share(rule: Rule, part: int, whole: int, noun: str, **details: Any) -> Check:
    """A check whose figure is a share of things that are counted."""
    share = _share(part, whole)
    finding = f"{_percent(share)}, {part:,} of {count_noun(whole, noun)}"
    return Check(rule=rule, figure=share, finding=finding, details={"count": part, "of": whole, **details})


# ---- pairs ----


def _check_pairs(subject: _Subject) -> Iterator[Check]:
    facts = subject.facts
    is_pair = facts.labels >= 0
    yield _check_order(facts, is_pair)
    num_equal = int(np.count_nonzero(facts.is_equal & is_pair))
    yield _check_share(rules.EQUAL_SEGMENTS, num_equal, int(is_pair.sum()), "pair")
    yield _check_share(rules.UNPAIRED_ROWS, int(np.count_nonzero(~is_pair)), len(facts), "row")
    yield _check_near_empty(subject)
    if subject.has_prefix:
        num_segments = int(np.count_nonzero(facts.lens_b) + len(facts))
        yield _check_share(rules.SEGMENTS_INSIDE_WORD, int(facts.num_inside.sum()), num_segments, "segment")
    else:
        finding = "this tokenizer doesn't mark the first word of a sentence, so that it can't be told"
        yield Check(rule=rules.SEGMENTS_INSIDE_WORD, figure=None, finding=finding)


def _check_order(facts: RowFacts, is_pair: np.ndarray) -> Check:
    rule = rules.ORDER_FROM_LENGTHS
    guessed = guess_order(facts.lens_a[is_pair], facts.lens_b[is_pair], facts.labels[is_pair] == 1)
    if guessed is None:
        finding = f"{count_noun(int(is_pair.sum()), 'pair')} are too few to tell"
        return Check(rule=rule, figure=None, finding=finding)
    accuracy, error = guessed
    finding = (
        f"{_percent(accuracy)} of the guesses are right; chance is {_percent(_CHANCE)} with a standard error of "
        f"{_percent(error)}, {abs(accuracy - _CHANCE) / error:.1f} of these away"
    )
    gain = accuracy - _CHANCE if accuracy - _CHANCE > _ERRORS * error else 0.0
    details = {"accuracy": accuracy, "chance": _CHANCE, "standard_error": error}
    return Check(rule=rule, figure=gain, finding=finding, details=details)


def _check_near_empty(subject: _Subject) -> Check:
    config, facts = read_example_config(subject.shards[0].manifest), subject.facts
    least = max(EMPTY_TOKENS, config.max_tokens // EMPTY_PART)
    count = int(np.count_nonzero(facts.num_text < least))
    asked = config.short_seq_prob * least / config.max_tokens
    share = _share(count, len(facts))
    finding = (
        f"{_percent(share)}, {count_noun(count, 'row')} of under {least} tokens of text; short_seq_prob asks for "
        f"{_percent(asked)}"
    )
    details = {"count": count, "of": len(facts), "share": share, "asked_for": asked, "under_tokens": least}
    return Check(rule=rules.NEAR_EMPTY_ROWS, figure=max(0.0, share - asked), finding=finding, details=details)


# ---- copies ----


def _check_copies(subject: _Subject) -> Iterator[Check]:
    yield _check_shared(subject)
    facts = subject.facts
    num_copied = int(np.count_nonzero(_find_copied(subject)))
    yield _check_share(rules.DUPLICATE_DOCUMENTS, num_copied, len(subject.documents), "different document")
    has_twin = _stand_in_documents(facts.texts, subject.owners) >= 2
    yield _check_share(rules.DUPLICATE_ROWS, int(np.count_nonzero(has_twin)), len(facts), "row")
    yield _check_boilerplate(subject)


def _find_copied(subject: _Subject) -> np.ndarray:
    """Documents given more than once: bool, for each.

    Copies of a document have equal rows. So have passes over one of a few tokens, by chance; but given once, such a
    one fits a row and has no more tokens than that in each pass. Passes over one too long for a row are never alike.
    """
    facts = subject.facts
    _, which, counts = np.unique(facts.rows, return_inverse=True, return_counts=True)
    is_once = subject.add_by_document((counts[which] == 1).astype(float))
    longest = np.zeros(len(subject.documents))
    np.maximum.at(longest, subject.owners, facts.num_text)
    passes = read_example_config(subject.shards[0].manifest).dupe_factor
    copied: np.ndarray = (is_once == 0) & (subject.add_by_document(facts.num_text) >= 2 * passes * longest)
    return copied


def _check_shared(subject: _Subject) -> Check:
    keys = subject.facts.keys
    parts = [np.unique(keys[begin:end]) for begin, end in zip(subject.begins, subject.begins[1:], strict=False)]
    if len(parts) < 2:
        return Check(rule=rules.SHARED_DOCUMENTS, figure=None, finding="one split alone has rows")
    shared = np.intersect1d(parts[0], parts[1], assume_unique=True)
    finding = f"{count_noun(len(shared), 'document')} of {len(parts[1]):,} in validation"
    details = {"count": len(shared), "document_keys": [f"{key:016x}" for key in shared[:_SHOWN].tolist()]}
    return Check(rule=rules.SHARED_DOCUMENTS, figure=len(shared), finding=finding, details=details)


def _stand_in_documents(hashes: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """In how many different documents each hash stands: int64, for each of them."""
    _, which = np.unique(hashes, return_inverse=True)
    num_owners = int(owners.max(initial=0)) + 1
    both = np.unique(which.astype(np.int64) * num_owners + owners)  # below 2**63 for a billion of each
    counts: np.ndarray = np.bincount(both // num_owners)[which]
    return counts


def _check_boilerplate(subject: _Subject) -> Check:
    rule = rules.BOILERPLATE
    is_chosen, part = choose_documents(subject.documents, subject.add_by_document(subject.facts.num_text))
    windows, num_chosen = gather_windows(subject.shards, is_chosen[subject.owners], part), int(is_chosen.sum())
    if len(windows) == 0:
        return Check(rule=rule, figure=None, finding=f"no segment has {WINDOW} tokens")
    spread = _stand_in_documents(windows.hashes, subject.owners[windows.rows])
    least = max(MANY_DOCUMENTS, int(np.ceil(MANY_SHARE * num_chosen)))
    share, most = _share(int(np.count_nonzero(spread >= least)), len(spread)), int(np.argmax(spread))
    documents = count_noun(num_chosen, "document" if num_chosen == len(is_chosen) else "sampled document")
    finding = f"{_percent(share)} of the runs of {WINDOW} tokens stand in at least {least:,} of {documents} each"
    details: dict[str, Any] = {
        "share": share,
        "in_documents": least,
        "window_tokens": WINDOW,
        "num_sampled": len(spread),
        "num_documents_sampled": num_chosen,
    }
    if share > 0:
        text = _decode_window(subject, int(windows.rows[most]), int(windows.places[most]))
        finding += f'; most of all "{text}", in {spread[most]:,}'
        details |= {"example": text, "example_documents": int(spread[most])}
    return Check(rule=rule, figure=share, finding=finding, details=details)


def _decode_window(subject: _Subject, row: int, place: int) -> str:
    number = int(np.searchsorted(subject.begins, row, side="right")) - 1
    example = subject.shards[number][row - subject.begins[number]]
    return subject.tokenizer.decode(example.original_ids[place : place + WINDOW])


# ---- text ----


def _check_text(subject: _Subject) -> Iterator[Check]:
    facts = subject.facts
    lens, unknown = subject.add_by_document(facts.num_text), subject.add_by_document(facts.num_unknown)
    many = int(np.count_nonzero(unknown > _UNKNOWN_DOCUMENT * lens))
    num_text, num_unknown = int(lens.sum()), int(unknown.sum())
    yield _check_share(rules.UNKNOWN_RATE, num_unknown, num_text, "token", num_documents_over_5_percent=many)
    largest = int(np.argmax(lens))
    yield _check_share(
        rules.LARGEST_DOCUMENT,
        int(lens[largest]),
        num_text,
        "token",
        document_key=f"{int(subject.documents[largest]):016x}",
    )


def _check_sources(subject: _Subject, corpus: Corpus | None) -> Iterator[Check]:
    if corpus is None:
        for rule in (rules.UNKNOWN_BY_SOURCE, rules.LARGEST_SOURCE):
            yield Check(rule=rule, figure=None, finding=_NEEDS_CORPUS)
        return
    sources = corpus.find_sources(subject.documents)
    found = sources >= 0
    if not found.any():
        raise InputError("--corpus has none of the shards' documents; give the inputs that they were built from")
    lens = np.bincount(sources[found], subject.add_by_document(subject.facts.num_text)[found], len(corpus.names))
    unknown = np.bincount(sources[found], subject.add_by_document(subject.facts.num_unknown)[found], len(corpus.names))
    coverage = {"num_documents": len(found), "num_documents_found": int(found.sum())}
    missing = f"; {len(found) - int(found.sum()):,} of the documents are in none" if not found.all() else ""
    rates = np.divide(unknown, lens, out=np.zeros_like(lens), where=lens > 0)
    worst, largest = int(np.argmax(rates)), int(np.argmax(lens))
    yield Check(
        rule=rules.UNKNOWN_BY_SOURCE,
        figure=float(rates[worst]),
        finding=f"{_percent(rates[worst])} of {corpus.names[worst]}{missing}",
        details={**coverage, "rates": dict(zip(corpus.names, rates.tolist(), strict=True))},
    )
    if len(corpus.names) == 1:
        yield Check(rule=rules.LARGEST_SOURCE, figure=None, finding="the corpus is one file")
        return
    shares = lens / lens.sum()
    yield Check(
        rule=rules.LARGEST_SOURCE,
        figure=float(shares[largest]),
        finding=f"{_percent(shares[largest])} of the tokens are from {corpus.names[largest]}{missing}",
        details={**coverage, "shares": dict(zip(corpus.names, shares.tolist(), strict=True))},
    )


def _check_characters(subject: _Subject, corpus: Corpus | None) -> Check:
    rule = rules.LOST_CHARACTERS
    if corpus is None:
        finding = "shards hold the text as it was normalised; give the build's inputs with --corpus"
        return Check(rule=rule, figure=None, finding=finding)
    total, lost = find_lost(corpus.characters, subject.tokenizer)
    count = sum(one.count for one in lost)
    finding = f"{_percent(_share(count, total))}, {count:,} of {count_noun(total, 'visible character')}"
    if lost:
        shown = (f"{one.character} (U+{ord(one.character):04X}) {one.how}, {one.count:,}" for one in lost[:_SHOWN])
        finding += f"; most of all: {'; '.join(shown)}"
    details = {"count": count, "of": total, "characters": [one.to_dict() for one in lost[:_SHOWN]]}
    return Check(rule=rule, figure=_share(count, total), finding=finding, details=details)
