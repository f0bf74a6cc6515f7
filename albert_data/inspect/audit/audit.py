"""Checks whether shards are a good pretraining set, from the shards, and from the corpus where that is given.

In: a finished shard folder. Out: checks, each with a figure, a verdict and what to do; audit/rules.py holds
their limits. Figures are counted anew from the rows. The manifest gives the config, the rules version, and the counts
from which the advice on the corpus's layout is made (shards/advice.py). What can't be known from the shards is
"not known", not guessed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from albert_data.corpus.inputs import Input
from albert_data.errors import InputError
from albert_data.examples.pair_tasks import SWAPPED
from albert_data.inspect.audit import rules
from albert_data.inspect.audit.corpus import Corpus, find_lost, read_corpus
from albert_data.inspect.audit.guesses import check_order, check_shares
from albert_data.inspect.audit.overlap import Overlap, find_overlap
from albert_data.inspect.audit.row_texts import check_texts
from albert_data.inspect.audit.rows import Subject, gather_subject
from albert_data.inspect.audit.rules import BAD, LOOK, Check
from albert_data.inspect.audit.shares import judge_share
from albert_data.inspect.sources import SourceStatistics
from albert_data.inspect.tables import lay_out, tabulate_sources
from albert_data.report.page import escape, render_table
from albert_data.shards.advice import advise_on
from albert_data.shards.decoding import find_byte_pieces
from albert_data.shards.manifest import SPLITS
from albert_data.shards.reader import Shards, open_splits
from albert_data.text.escaping import escape_controls, name_as_text
from albert_data.text.wording import count_of, format_share, list_some, wrap_words

WIDTH = 80
EMPTY_PART, EMPTY_TOKENS = 16, 4  # a near-empty row has under a sixteenth of the possible tokens, or under four
SHORT_TOKENS = 16  # and with --pairs none under so many
_MANY_UNKNOWN = 0.05  # documents with a larger share of unknown tokens are counted
_SHOWN = 5  # examples in a finding
_SHOWN_TOKENS = 24  # of a row
# Checks whose verdict can be look or bad because the layout was misread, for example lines taken for documents.
_CAUSED_BY_LAYOUT = (rules.ORDER_FROM_FRAGMENTS, rules.UNPAIRED_ROWS, rules.NEAR_EMPTY_ROWS)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """All checks of a folder, in a fixed order: pairs, copies, text, sources, corpus.

    by_source: the rows of each source, the worst first; empty where rows have none
    ignored: names of checks that don't fail
    """

    folder: Path
    checks: list[Check]
    by_source: tuple[SourceStatistics, ...] = ()
    ignored: frozenset[str] = frozenset()

    def count(self, verdict: str) -> int:
        return sum(check.verdict == verdict for check in self.checks)

    @property
    def _verdicts(self) -> str:
        """How many checks have each verdict."""
        return ", ".join(f"{self.count(verdict)} {verdict}" for verdict in rules.VERDICTS)

    def list_failed(self, least: str) -> list[str]:
        """The checks whose verdict is `least` or worse, as "name is bad". least: "look" or "bad"."""
        failing = (BAD,) if least == BAD else (LOOK, BAD)
        found = (check for check in self.checks if check.rule.name not in self.ignored)
        return [f"{check.rule.name} is {check.verdict}" for check in found if check.verdict in failing]

    def to_text(self) -> str:
        """A page of at most 80 columns."""
        lines = wrap_words(escape_controls(f"{self.folder}: {self._verdicts}"), WIDTH)
        for check in self.checks:
            lines += ["", *check_to_lines(check)]
        if self.by_source:
            lines += ["", *lay_out(tabulate_sources("Sources", self.by_source))]
        return "\n".join(lines)

    def to_html(self) -> str:
        """What needs attention first, each with what to do; then all checks."""
        if not self.checks:
            return "<p>Nothing was checked: no split has rows.</p>"
        concerns = [check for verdict in (BAD, LOOK) for check in self.checks if check.verdict == verdict]
        says = f"{count_of(len(self.checks), 'check')} for what makes a pretraining set bad: {self._verdicts}."
        if not concerns:
            says += " There is nothing to do."
        rows = ([check.rule.title, check.verdict, check.finding] for check in self.checks)
        table = render_table(["check", "verdict", "what was found"], rows, kind="prose")
        return "\n".join([f"<p>{escape(says)}</p>", *map(_render_concern, concerns), table])

    _repr_html_ = to_html  # for notebooks

    def __repr__(self) -> str:
        return f"Audit({str(self.folder)!r}: {self._verdicts}; to_text() says what was found)"

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON, by stable names."""
        return {
            "folder": name_as_text(self.folder),
            "verdicts": {verdict.replace(" ", "_"): self.count(verdict) for verdict in rules.VERDICTS},
            "checks": {check.rule.name: check.to_dict() for check in self.checks},
            **({"by_source": [source.to_dict() for source in self.by_source]} if self.by_source else {}),
        }


def check_to_lines(check: Check) -> list[str]:
    """Verdict, finding and what to do, in at most 80 columns."""
    lines = [f"{check.verdict:9}  {check.rule.title}", *_indent(check.finding)]
    return lines + (_indent(f"To do: {check.rule.advice}.") if check.verdict in (LOOK, BAD) else [])


def _render_concern(check: Check) -> str:
    return (
        f'<div class="card concern"><h3><span class="verdict {check.verdict}">{check.verdict}</span> '
        f"{escape(check.rule.title)}</h3><p>{escape(check.finding)}.</p>"
        f"<p>To do: {escape(check.rule.advice)}.</p></div>"
    )


def _indent(text: str) -> list[str]:
    return wrap_words(escape_controls(text), WIDTH, " " * 11)


def audit_folder(folder: Path, corpus: list[Input] | None = None) -> Audit:
    """Audit every split. corpus: the inputs of the build, for the checks that need them.

    Raises ShardError if the folder is no finished build, and InputError for a corpus that can't be read, or that
    has no document of the shards.
    """
    splits = open_splits(folder)
    opened = [splits[name] for name in SPLITS if name in splits and len(splits[name]) > 0]
    contents = read_corpus(corpus, opened[0].manifest.config.text) if opened and corpus is not None else None
    return audit_splits(folder, opened, contents)


def audit_splits(folder: Path, opened: list[Shards], corpus: Corpus | None = None) -> Audit:
    """Audit splits that have rows. corpus: what the inputs hold. Raises InputError if it has none of the documents."""
    if not opened:
        return Audit(folder=folder, checks=[])
    subject = gather_subject(opened)
    checks = [*_check_pairs(subject), *_check_copies(subject), *_check_text(subject)]
    checks += [*_check_sources(subject), *_check_corpus(subject, corpus)]
    parts = (opened[0].manifest.config, opened[0].manifest.config.text, *(opened[0].manifest.mixture or ()))
    options_on = {name.replace("_", "-") for part in parts for name, value in vars(part).items() if value}
    checks = [dataclasses.replace(check, rule=check.rule.fit(options_on)) for check in checks]
    # Likely ones, if the layout was misread: how accents are written is none of them.
    causes = [one.text for one in advise_on(opened[0].manifest) if "--unicode" not in one.options]
    for number, check in enumerate(checks):
        if causes and check.rule in _CAUSED_BY_LAYOUT and check.verdict in (LOOK, BAD):
            checks[number] = dataclasses.replace(check, finding="; ".join([check.finding, *causes]))
            causes = [f"perhaps for the same reason as {check.rule.title}"]
    return Audit(folder=folder, checks=checks, by_source=subject.by_source)


# ---- pairs ----


def _check_pairs(subject: Subject) -> Iterator[Check]:
    facts, task = subject.facts, subject.config.task
    is_pair = facts.labels >= 0
    if SWAPPED in task.orders:
        yield from check_order(subject)
    if task.orders:
        yield check_shares(facts, task.orders)
        yield judge_share(subject, rules.EQUAL_SEGMENTS, "pair", facts.is_equal & is_pair, is_pair)
        yield judge_share(subject, rules.UNPAIRED_ROWS, "row", ~is_pair)
    yield judge_share(subject, rules.ROWS_WITHOUT_TASK, "row", ~is_pair & (facts.num_masked == 0))
    yield _check_near_empty(subject)
    if subject.tokenizer.has_prefix:
        num_segments = 1 + (facts.lens_b > 0)
        yield judge_share(subject, rules.SEGMENTS_INSIDE_WORD, "segment", facts.num_inside, num_segments)
    else:
        finding = "this tokenizer doesn't mark the first word of a sentence, so this can't be known"
        yield Check(rules.SEGMENTS_INSIDE_WORD, None, finding)


def _check_near_empty(subject: Subject) -> Check:
    config, facts = subject.config, subject.facts
    least = max(EMPTY_TOKENS, config.max_tokens // EMPTY_PART)
    if not config.task.orders:  # rows without pairs are packed, so a short one costs nothing
        least = min(least, SHORT_TOKENS)
    asked = config.short_seq_prob * least / config.max_tokens
    says = f"these have under {least} tokens of text; short_seq_prob asks for {format_share(asked)}"
    details = {"asked_for": asked, "under_tokens": least}
    is_near_empty = facts.num_text < least
    return judge_share(subject, rules.NEAR_EMPTY_ROWS, "row", is_near_empty, asked=asked, more=[says], details=details)


# ---- copies ----


def _check_copies(subject: Subject) -> Iterator[Check]:
    yield _check_seen(subject)
    rows, is_copied = np.unique(subject.owners, return_index=True)[1], _find_copied(subject)
    yield judge_share(subject, rules.DUPLICATE_DOCUMENTS, "different document", is_copied, rows=rows)
    has_twin = _count_documents(subject.facts.texts, subject.owners) >= 2
    yield judge_share(subject, rules.DUPLICATE_ROWS, "row", has_twin)


def _count_documents(texts: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """In how many different documents each text occurs: int64, for each row. owners: the document of each row."""
    _, which = np.unique(texts, return_inverse=True)
    num_owners = int(owners.max(initial=0)) + 1
    pairs = np.unique(which.astype(np.int64) * num_owners + owners)  # below 2**63 for a billion of each
    counts: np.ndarray = np.bincount(pairs // num_owners)[which]
    return counts


def _find_copied(subject: Subject) -> np.ndarray:
    """Documents that occur more than once in the corpus: bool, for each.

    All rows of a copied document occur at least twice. Each pass over a copy gives at least the tokens of the longest
    row, so two copies have at least 2 * passes * (tokens of the longest row). All passes over a document that occurs
    once can be equal too, by chance, but only if it is so short that it fits into one row. Then its rows have at most
    passes * (tokens of the longest row).
    """
    facts = subject.facts
    _, which, counts = np.unique(facts.rows, return_inverse=True, return_counts=True)
    is_whole = facts.keys == facts.keys_b  # each copy of a row may have got another random segment
    num_text = np.where(is_whole, facts.num_text, 0)
    num_once = subject.add_by_document(((counts[which] == 1) & is_whole).astype(float))
    longest = np.zeros(len(subject.documents))
    np.maximum.at(longest, subject.owners, num_text)
    is_repeated = subject.add_by_document(num_text) >= 2 * _count_passes(subject) * longest
    copied: np.ndarray = (num_once == 0) & (longest > 0) & is_repeated
    return copied


def _count_passes(subject: Subject) -> np.ndarray:
    """The most passes over each document: int64."""
    manifest = subject.shards[0].manifest
    if manifest.mixture is None:
        return np.full(len(subject.documents), manifest.config.examples.dupe_factor)
    sources = np.zeros(len(subject.documents), np.int64)
    sources[subject.owners] = subject.facts.sources
    passes: np.ndarray = np.ceil([one.passes for one in manifest.mixture]).astype(np.int64)[sources]
    return passes


def _check_seen(subject: Subject) -> Check:
    rule = rules.SEEN_ROWS
    if len(subject.shards) < 2:
        return Check(rule, None, "one split alone has rows")
    overlap = find_overlap(subject)
    num_seen, num_altered = (int(np.count_nonzero(is_so)) for is_so in (overlap.is_seen, overlap.is_altered))
    if not overlap.is_judged.any():
        return Check(rule, None, "every row of validation is too short")
    examples = list(_show_seen(subject, overlap))
    details = {"num_seen": num_seen, "num_altered": num_altered, "examples": examples}
    shown = [f"{num_altered:,} of them changed"] if examples else []
    for one in examples[:1]:
        shown.append(f'row {one["row"]:,} is in training row {one["training_row"]:,}: "{one["text"]}"')
    found, rows = overlap.is_seen | overlap.is_altered, subject.begins[1] + np.arange(len(overlap.is_seen))
    return judge_share(subject, rule, "row", found, overlap.is_judged, rows=rows, more=shown, details=details)


def _show_seen(subject: Subject, overlap: Overlap) -> Iterator[dict[str, Any]]:
    for row in np.flatnonzero(overlap.is_seen | overlap.is_altered)[:_SHOWN].tolist():
        text = subject.tokenizer.decode(subject.shards[1][row].original_ids[1 : 1 + _SHOWN_TOKENS])
        share, training_row = float(overlap.shares[row]), int(overlap.training_rows[row])
        yield {"row": row, "training_row": training_row, "share": share, "text": text}


# ---- text ----


def _check_text(subject: Subject) -> Iterator[Check]:
    facts = subject.facts
    lens, unknown = subject.add_by_document(facts.num_text), subject.add_by_document(facts.num_unknown)
    many = {"num_documents_over_5_percent": int(np.count_nonzero(unknown > _MANY_UNKNOWN * lens))}
    yield judge_share(subject, rules.UNKNOWN_RATE, "token", facts.num_unknown, facts.num_text, details=many)
    largest, total = int(np.argmax(lens)), int(lens.sum())
    key = f"{int(subject.documents[largest]):016x}"
    yield Check.of_share(rules.LARGEST_DOCUMENT, int(lens[largest]), total, "token", document_key=key)
    yield from check_texts(subject)


def _check_sources(subject: Subject) -> Iterator[Check]:
    facts, names = subject.facts, subject.shards[0].manifest.sources or ()
    if find_byte_pieces(subject.tokenizer).any():
        yield judge_share(subject, rules.BYTE_PIECES, "token", facts.num_bytes, facts.num_text)
    if len(names) > 1:
        shares = np.bincount(facts.sources, facts.num_text, len(names)) / max(int(facts.num_text.sum()), 1)
        largest = int(np.argmax(shares))
        finding = f"{format_share(shares[largest])} of the tokens are from source {names[largest]}"
        if small := [one.name for one in subject.by_source if one.is_small]:
            finding += f"; of too few documents to be judged: {list_some(small, _SHOWN)}"
        details = {"shares": dict(zip(names, shares.tolist(), strict=True)), "too_small": small}
        yield Check(rules.LARGEST_SOURCE, float(shares[largest]), finding, details)


# ---- the corpus ----


def _check_corpus(subject: Subject, corpus: Corpus | None) -> Iterator[Check]:
    if corpus is None:
        finding = "shards hold the text as it was normalised; give the build's inputs with --corpus"
        yield Check(rules.LOST_CHARACTERS, None, finding)
        finding = "shards hold rows, not documents; give the build's inputs with --corpus"
        yield Check(rules.NEAR_DUPLICATES, None, finding)
        return
    num_missing = int(np.count_nonzero(~np.isin(subject.documents, corpus.keys)))
    if num_missing == len(subject.documents):
        raise InputError("--corpus has none of the shards' documents; give the inputs that they were built from")
    yield _check_characters(subject, corpus)
    yield _check_similar(subject, corpus, num_missing)


def _check_characters(subject: Subject, corpus: Corpus) -> Check:
    total, lost = find_lost(corpus.characters, subject.tokenizer)
    shown = [f"{one.character} (U+{ord(one.character):04X}) {one.how}, {one.count:,}" for one in lost[:_SHOWN]]
    listed = [{"character": f"U+{ord(one.character):04X}", "count": one.count, "how": one.how} for one in lost[:_SHOWN]]
    count, most = sum(one.count for one in lost), [f"the most frequent: {'; '.join(shown)}"] if shown else []
    return Check.of_share(rules.LOST_CHARACTERS, count, total, "visible character", *most, characters=listed)


def _check_similar(subject: Subject, corpus: Corpus, num_missing: int) -> Check:
    """Documents of the shards that are similar to another one of the corpus. num_missing: those that it lacks."""
    count, total = int(np.isin(subject.documents, corpus.similar_keys).sum()), len(subject.documents)
    shown = [f"{num_missing:,} documents of the shards are in no file of --corpus"] if num_missing else []
    listed = []
    for *keys, similarity in [one for one in corpus.near_duplicates.pairs if one[0] in subject.documents][:_SHOWN]:
        named = [corpus.name_document(key) for key in keys]
        listed.append({"documents": named, "similarity": similarity})
        shown.append(f"{' and '.join(named)}: similarity {similarity:.2f}")
    more: dict[str, Any] = {"pairs": listed, "num_missing": num_missing}
    return Check.of_share(rules.NEAR_DUPLICATES, count, total, "different document", *shown, **more)
