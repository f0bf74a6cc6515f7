"""Shows what a model guesses for masked words of real text.

In: a model and rows of a split. Out: text for a terminal and a page. Of each row one word is masked, one that the build
masked too, and the model sees all others. Control characters of the text are escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.words import WordRule, find_word_starts
from albert_data.train.batch import NO_LABEL, collate
from albert_data.train.model import Albert, Output

_NUM_GUESSES = 3  # shown of a word of one piece
_CONTEXT_TOKENS = 12  # shown on each side of the gap: about a line of 80 columns in all
_ROWS_PER_QUESTION = 8  # rows that are searched for a suitable word
_WIDTH, _INDENT = 80, 3
_GAP = "____"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A word to guess.

    ids: uint16 or uint32, its row before masking.
    segment_a_len: of the row.
    begin, end: the bounds of the word.
    first, last: the bounds of the tokens to show around it.
    is_cut_left, is_cut_right: whether the segment goes on there.
    """

    ids: np.ndarray
    segment_a_len: int
    begin: int
    end: int
    first: int
    last: int
    is_cut_left: bool
    is_cut_right: bool


class Answer(NamedTuple):
    """The text of a question with a gap, the right word, and the model's guesses. Control characters are escaped."""

    sentence: str
    right: str
    guesses: str


class Guesser:
    """Asks a model for the same masked words each time. Equal weights give equal answers."""

    def __init__(self, rows: Shards, *, count: int = 5, say: Callable[[str], None] = print) -> None:
        """Rows of a split are in random order, so the first ones are examples of all. There may be none.

        say: told why there are no guesses if memory runs out.
        """
        self._say = say
        self._tokenizer = rows.tokenizer
        self._questions = choose_questions(rows, self._tokenizer, count)

    def ask(self, model: Albert) -> list[Answer]:
        """Return an answer for each question. Draws no random number. The model stays on its device and in its mode."""
        questions, tokenizer = self._questions, self._tokenizer
        if not questions:
            return []
        try:
            logits_NV = _predict(model, questions, tokenizer)
        except torch.cuda.OutOfMemoryError:  # training may fill the GPU, and should not end for five sentences
            self._say("no guesses are shown: the GPU has no memory left for them")
            return []
        is_ordinary_V = torch.zeros(logits_NV.shape[1], dtype=torch.bool)
        is_ordinary_V[torch.from_numpy(tokenizer.ordinary_ids.astype(np.int64))] = True
        probs_NV = logits_NV.masked_fill(~is_ordinary_V, -torch.inf).softmax(-1)
        answers = []
        for question, probs in zip(questions, torch.split(probs_NV, [q.end - q.begin for q in questions]), strict=True):
            right = _show_pieces(question.ids[question.begin : question.end], tokenizer)
            guesses = ", ".join(f'"{guess}" {format_share(share, 1)}' for guess, share in _guess(probs, tokenizer))
            answers.append(Answer(*map(escape_controls, (_show_gap(question, tokenizer), right, guesses))))
        return answers


def make_guesser(rows: Shards | None, say: Callable[[str], None]) -> Guesser | None:
    """None, and a message, for shards without their tokenizer: training with the stored masks does not need it."""
    try:
        return None if rows is None else Guesser(rows, say=say)
    except ShardError as error:
        say(f"no guesses are shown: {error}")
        return None


def to_lines(answers: Sequence[Answer]) -> Iterator[str]:
    """The answers for a terminal, in lines of about 80 columns."""
    for number, (sentence, right, guesses) in enumerate(answers, 1):
        head, indent = f"{number}.".ljust(_INDENT), " " * _INDENT
        yield from wrap_words(sentence, _WIDTH, head, indent)
        yield f'{indent}right: "{right}"; guessed: {guesses}'


def choose_questions(rows: Shards, tokenizer: Tokenizer, count: int) -> list[Question]:
    """Choose at most one masked word of each row, until there are `count`."""
    numbers = np.arange(min(len(rows), _ROWS_PER_QUESTION * count))
    examples, manifest = rows.rows(numbers), rows.manifest
    rule = tokenizer.word_rule(manifest.config.examples)
    found = (_find_question(examples, row, rule, tokenizer) for row in range(len(examples)))
    return [question for question in found if question is not None][:count]


def _find_question(examples: Examples, row: int, rule: WordRule, tokenizer: Tokenizer) -> Question | None:
    """The best masked word of a row: of one piece if possible, and with much text on both sides.

    A word has a letter or digit, and no special or unknown piece.
    """
    begin, end = examples.offsets[row : row + 2]
    ids, a_len = restore_ids(examples)[begin:end], int(examples.segment_a_len[row])
    masked = set(examples.masked_positions[slice(*examples.mask_offsets[row : row + 2])].tolist())
    found: dict[tuple[bool, int], Question] = {}
    for segment_begin, segment_end in ((1, 1 + a_len), (2 + a_len, len(ids) - 1)):
        starts = segment_begin + np.flatnonzero(find_word_starts(ids[segment_begin:segment_end], rule))
        bounds = [*starts.tolist(), segment_end]
        for at, word_end in zip(bounds, bounds[1:], strict=False):
            word = ids[at:word_end]
            if at not in masked or not np.isin(word, tokenizer.ordinary_ids).all():
                continue
            if any(map(str.isalnum, tokenizer.decode(word))):
                first = next(start for start in bounds if start >= at - _CONTEXT_TOKENS)
                last = max(bound for bound in bounds if bound <= word_end + _CONTEXT_TOKENS)
                question = Question(
                    ids=ids,
                    segment_a_len=a_len,
                    begin=at,
                    end=word_end,
                    first=first,
                    last=last,
                    is_cut_left=first > segment_begin,
                    is_cut_right=last < segment_end,
                )
                # Of equal words the first.
                found.setdefault((len(word) > 1, -min(at - segment_begin, segment_end - word_end)), question)
    return found[min(found)] if found else None


@torch.no_grad()
def _predict(model: Albert, questions: Sequence[Question], tokenizer: Tokenizer) -> Tensor:
    """The logits of all masked tokens, in float32 on the CPU. A compiled model runs eagerly: the shape is a new one."""
    rows = [question.ids.copy() for question in questions]
    words = [np.arange(question.begin, question.end) for question in questions]
    masked_ids = np.concatenate([row[word] for row, word in zip(rows, words, strict=True)])
    for row, word in zip(rows, words, strict=True):
        row[word] = tokenizer.mask_id
    examples = Examples(
        input_ids=np.concatenate(rows),
        offsets=np.cumsum([0, *map(len, rows)]),
        segment_a_len=np.array([question.segment_a_len for question in questions], np.int32),
        sop_label=np.full(len(rows), NO_LABEL, np.int8),
        masked_positions=np.concatenate(words).astype(np.uint16),
        masked_ids=masked_ids,
        mask_offsets=np.cumsum([0, *map(len, words)]),
        document_keys=np.zeros(len(rows), np.uint64),
    )
    batch = collate(examples, pad_id=tokenizer.pad_id)
    was_training = model.training
    model.eval()
    with torch.compiler.set_stance("force_eager"):
        output: Output = model(batch.to(next(model.parameters()).device))
    model.train(was_training)
    return output.mlm_logits_NV.float().cpu()


def _show_gap(question: Question, tokenizer: Tokenizer) -> str:
    """The text around the word, with a gap in its place. Cut ends are shown as three dots."""
    pieces, text = tokenizer.piece_texts, ""
    for begin, end in ((question.first, question.begin), (question.begin, question.end), (question.end, question.last)):
        if begin < end:
            is_spaced = bool(text) and pieces[question.ids[begin]].startswith(VISIBLE_SPACE)
            shown = _GAP if begin == question.begin else tokenizer.decode(question.ids[begin:end]).strip()
            text += f" {shown}" if is_spaced else shown
    return "... " * question.is_cut_left + text + " ..." * question.is_cut_right


def _guess(probs_NV: Tensor, tokenizer: Tokenizer) -> list[tuple[str, float]]:
    """The best guesses for a word and their probabilities; of several pieces the best of each, as one guess."""
    if len(probs_NV) > 1:
        best_N, ids_N = probs_NV.max(-1)
        return [(_show_pieces(ids_N.numpy(), tokenizer), float(best_N.prod()))]
    shares, ids = probs_NV[0].topk(min(_NUM_GUESSES, probs_NV.shape[1]))
    return [(_show_pieces(i.numpy(), tokenizer), share) for i, share in zip(ids[:, None], shares.tolist(), strict=True)]


def _show_pieces(ids: np.ndarray, tokenizer: Tokenizer) -> str:
    """Their text; or the pieces themselves where they have none, as the piece of a lone space."""
    return tokenizer.decode(ids).strip() or "".join(tokenizer.piece_texts[i] for i in ids)
