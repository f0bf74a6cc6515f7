"""Shows what a model guesses for masked words of real text.

In: a model and rows of a split. Out: text for a terminal and a page. Of each row one word is masked, one of a single
piece that the build masked too, and the model sees all others. Control characters of the text are escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from albert_data.data import Examples
from albert_data.errors import ShardError
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.text.escaping import escape_controls
from albert_data.text.wording import format_share, wrap_words
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.words import WordRule, find_word_starts
from albert_data.train.batch import NO_LABEL, collate
from albert_data.train.model import Albert, Output

_NUM_GUESSES = 3
_CONTEXT_TOKENS = 12  # shown on each side of the gap: about a line of 80 columns in all
_ROWS_PER_QUESTION = 8  # rows that are searched for a suitable word
_WIDTH, _INDENT = 80, 3
_GAP = "____"


class Question(NamedTuple):
    """A word to guess, at a position of a row. ids: uint16 or uint32, the row before masking.

    sentence: the text around it, with a gap in its place. source: the name of the row's, if there are several.
    """

    ids: np.ndarray
    segment_a_len: int
    position: int
    sentence: str
    source: Sequence[str] = ()


Answer = tuple[str, ...]  # the text with a gap, the right word, the guesses, of several its source; all escaped


class Guesser:
    """Asks a model for the same masked words each time. Equal weights give equal answers."""

    def __init__(self, rows: Shards, *, count: int = 5) -> None:
        """Rows of a split are in random order, so the first ones are examples of all. There may be none."""
        self._tokenizer = rows.tokenizer
        self._questions = choose_questions(rows, self._tokenizer, count)

    def ask(self, model: Albert) -> list[Answer]:
        """Return an answer for each question. Draws no random number. The model stays on its device and in its mode."""
        questions, tokenizer = self._questions, self._tokenizer
        if not questions:
            return []
        logits_NV = _predict(model, questions, tokenizer)
        is_ordinary_V = torch.zeros(logits_NV.shape[1], dtype=torch.bool)
        is_ordinary_V[torch.from_numpy(tokenizer.ordinary_ids.astype(np.int64))] = True
        probs_NV = logits_NV.masked_fill(~is_ordinary_V, -torch.inf).softmax(-1)
        answers = []
        for question, probs_V in zip(questions, probs_NV, strict=True):
            shares, ids = probs_V.topk(min(_NUM_GUESSES, len(probs_V)))
            named = zip(ids.tolist(), shares.tolist(), strict=True)
            guesses = ", ".join(f'"{_show_piece(i, tokenizer)}" {format_share(share, 1)}' for i, share in named)
            right = _show_piece(int(question.ids[question.position]), tokenizer)
            answers.append(tuple(map(escape_controls, (question.sentence, right, guesses, *question.source))))
        return answers


def make_guesser(rows: Shards | None, say: Callable[[str], None]) -> Guesser | None:
    """None, and a message, for shards without their tokenizer: training with the stored masks does not need it."""
    try:
        return None if rows is None else Guesser(rows, count=max(5, min(8, len(rows.rows_by_source))))
    except ShardError as error:
        say(f"no guesses are shown: {error}")
        return None


def to_lines(answers: Sequence[Answer]) -> Iterator[str]:
    """The answers for a terminal, in lines of about 80 columns."""
    for number, (sentence, right, guesses, *source) in enumerate(answers, 1):
        head, indent = f"{number}.".ljust(_INDENT), " " * _INDENT
        yield from wrap_words(": ".join((*source, sentence)), _WIDTH, head, indent)
        yield f'{indent}right: "{right}"; guessed: {guesses}'


def choose_questions(rows: Shards, tokenizer: Tokenizer, count: int) -> list[Question]:
    """Choose at most one masked word of each row, until there are `count`: of sources in turn, the largest first."""
    parts = sorted(rows.rows_by_source, key=len, reverse=True)[: 2 * count] or [np.arange(len(rows))]  # some give none
    examples = rows.rows(np.concatenate([part[: _ROWS_PER_QUESTION * count // len(parts)] for part in parts]))
    rule = tokenizer.word_rule(rows.manifest.config.examples)
    names = np.array(rows.manifest.sources)[examples.sources, None] if rows.rows_by_source else [()] * len(examples)
    asked = (_find_question(examples, row, rule, tokenizer) for row in range(len(examples)))
    found = [one._replace(source=(*name,)) for one, name in zip(asked, names, strict=True) if one is not None]
    before = [sum(other.source == one.source for other in found[:i]) for i, one in enumerate(found)]
    return [found[i] for i in np.argsort(before, kind="stable")[:count]]


def _find_question(examples: Examples, row: int, rule: WordRule, tokenizer: Tokenizer) -> Question | None:
    """The masked word of one piece with a letter or digit, and with much text on both sides; None if there is none."""
    ids, a_len = restore_ids(examples)[slice(*examples.offsets[row : row + 2])], int(examples.segment_a_len[row])
    masked = examples.masked_positions[slice(*examples.mask_offsets[row : row + 2])].tolist()
    found: dict[int, tuple[int, int, int]] = {}  # the bounds of its segment and the word, by tokens to the nearer one
    for begin, end in ((1, 1 + a_len), (2 + a_len, len(ids) - 1)):
        is_start = [*find_word_starts(ids[begin:end], rule).tolist(), True]
        for at in (at for at in masked if begin <= at < end):
            is_word = is_start[at - begin] and is_start[at - begin + 1] and ids[at] in tokenizer.ordinary_ids
            if is_word and any(map(str.isalnum, tokenizer.decode(ids[at : at + 1]))):
                found[min(at - begin, end - at)] = begin, at, end
    if not found:
        return None
    begin, at, end = found[max(found)]
    left, right = ids[max(begin, at - _CONTEXT_TOKENS) : at], ids[at + 1 : min(end, at + 1 + _CONTEXT_TOKENS)]
    sentence = f"{tokenizer.decode(left)} {_GAP} {tokenizer.decode(right)}".strip()
    return Question(ids, a_len, at, sentence)


@torch.no_grad()
def _predict(model: Albert, questions: Sequence[Question], tokenizer: Tokenizer) -> Tensor:
    """The logits of the masked tokens, in float32 on the CPU. A compiled model runs eagerly: the shape is a new one."""
    rows, positions = [question.ids.copy() for question in questions], [question.position for question in questions]
    masked_ids = np.array([row[at] for row, at in zip(rows, positions, strict=True)])
    for row, at in zip(rows, positions, strict=True):
        row[at] = tokenizer.mask_id
    examples = Examples(
        input_ids=np.concatenate(rows),
        offsets=np.cumsum([0, *map(len, rows)]),
        segment_a_len=np.array([question.segment_a_len for question in questions], np.int32),
        sop_label=np.full(len(rows), NO_LABEL, np.int8),
        masked_positions=np.array(positions, np.uint16),
        masked_ids=masked_ids,
        mask_offsets=np.arange(len(rows) + 1),
        document_keys=np.zeros(len(rows), np.uint64),
    )
    batch = collate(examples, pad_id=tokenizer.pad_id)
    was_training = model.training
    model.eval()
    with torch.compiler.set_stance("force_eager"):
        output: Output = model(batch.to(next(model.parameters()).device))
    model.train(was_training)
    return output.mlm_logits_NV.float().cpu()


def _show_piece(number: int, tokenizer: Tokenizer) -> str:
    """Its text; or the piece itself where it has none, as that of a lone space."""
    return tokenizer.decode(np.array([number])).strip() or tokenizer.piece_texts[number]
