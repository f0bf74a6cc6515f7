"""Where text can be cut so that its parts, tokenised alone, give the tokens of the whole.

Why the cuts are exact. SentencePiece normalises the text, then chooses among the ways to write it as pieces: for a
unigram model the one with the best score, for BPE the one that its merges produce. If no piece holds two characters as
neighbours, then no piece can cover both, and no merge can join them. So the choices to the left and to the right of the
position between them are independent. Six things need care:

- *Normalisation* replaces the longest string of a table of replacements (charsmap.py). A cut lies only before a
  character that no replaced string holds after another one (many hold a combining mark there), so no replaced string
  lies across a cut. The characters on both sides are *solid*: what they become, alone or with others, is not empty and
  holds no space.
- *Spaces* become "▁", one for each run of spaces. A cut at spaces leaves them out, and the part after them gets the "▁"
  again. No piece may hold a "▁" after another character. The first part of a sentence gets a "▁" too if the model
  adds one there (add_dummy_prefix); if not, it is normalised like a part that continues a word, without a "▁". The same
  bytes have other ids after a space, so the chunk table distinguishes the two kinds of parts.
- *Unknown characters* in a row give one unknown id, so two that meet at a cut become one (table.write_ids). At a
  space they meet only where "▁" itself is no piece, so that it is unknown too.
- *Rounding.* A unigram model sums scores in float32 along the sentence, so SentencePiece may prefer either of two
  ways of nearly equal scores. Both sums start from the same value, and each addition errs by at most 2^-24 of the
  sum. So a part is *fragile* if its two best ways are closer than these errors could be in a sentence whose score is
  CERTAIN_LIMIT. Its slot then stores the score below which its best way is certain (lattice.find_limit). A sentence
  whose score reaches the limit of one of its parts is given to SentencePiece whole. (All scores here are magnitudes.)

- *User-defined pieces* are matched before normalisation, the longest at each position, and copied as they are. They
  are pieces like others here, so no cut lies inside one. But their characters may be in the text unchanged, or may have
  been normalised. So no cut lies beside a character of theirs that normalisation alone would change.
- *A model that keeps runs of spaces* (remove_extra_whitespaces off) has a "▁" for each space. Then a cut lies only at a
  single space between two characters of a sentence (encoder.py removes those at its end).

`explain_unsafe` names the condition that a model breaks; then all text goes through SentencePiece.
"""

from __future__ import annotations

import numpy as np

from albert_data.tokenizer.chunks.cutting import AFTER, BEFORE, SINGLE, SOLID, CutRule, make_rule
from albert_data.tokenizer.chunks.trie import MAX_CHARACTERS
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.sentencepiece.charsmap import NUM_BASIC, read_charsmap
from albert_data.tokenizer.sentencepiece.proto import BPE, NORMAL, UNIGRAM, USER_DEFINED, ModelSettings

_SURROGATES = slice(0xD800, 0xE000)


def explain_unsafe(settings: ModelSettings, pieces: list[str]) -> str | None:
    """Why text can't be cut for this model, or None if it can."""
    if settings.model_type not in (UNIGRAM, BPE):
        return "it is neither a unigram nor a BPE model"
    if not settings.escape_whitespaces:
        return "it keeps spaces as they are (escape_whitespaces off)"
    if settings.treat_whitespace_as_suffix:
        return "it puts a space behind each word (treat_whitespace_as_suffix)"
    if any(VISIBLE_SPACE in piece.lstrip(VISIBLE_SPACE) for piece in pieces) or " " in "".join(
        list_user_defined(settings, pieces)
    ):
        return "it has pieces with a space inside or at the end"
    if not (settings.types == NORMAL).any():
        return "it has no ordinary pieces"
    if sum(map(len, pieces)) >= MAX_CHARACTERS:
        return f"its pieces hold {MAX_CHARACTERS:,} characters or more"
    return None


def list_user_defined(settings: ModelSettings, pieces: list[str]) -> list[str]:
    return [pieces[i] for i in np.flatnonzero(settings.types == USER_DEFINED)]


def make_cut_rule(settings: ModelSettings, pieces: list[str]) -> CutRule:
    """Derive the cuts from the model's own pieces and replacements. Raises ValueError if the latter are damaged.

    Characters beyond the basic plane have the entry of character 0, which is never beside a cut.
    """
    found = read_charsmap(settings.charsmap)
    solid = found.solid_alone & ~found.unsure
    solid[[0, ord(" "), ord(VISIBLE_SPACE)]] = False
    solid[_SURROGATES] = False
    # A model that replaces spaces, or strings with a space after another character, gets no cuts at all.
    solid &= not found.joined[ord(" ")]
    verbatim = np.frombuffer("".join(list_user_defined(settings, pieces)).encode("utf-32-le"), np.uint32)
    verbatim = verbatim[verbatim < NUM_BASIC]
    is_changed = ~found.single | (found.first != np.arange(NUM_BASIC))
    solid[verbatim[is_changed[verbatim]]] = False
    # AFTER needs it too: a character that is joined to the one before it may become another with it (e and U+0301
    # become é), and then the pair that is looked up is not the one in the text.
    independent = solid & ~found.joined
    flags = BEFORE * independent + AFTER * independent + SOLID * solid + SINGLE * (solid & found.single)
    bigrams = find_bigrams(pieces)
    bigrams = np.concatenate((bigrams, find_contracted(bigrams, found.contractions, found.first)))
    return make_rule(
        flags.astype(np.uint8), found.first, found.last, bigrams, joins_spaces=settings.remove_extra_whitespaces
    )


def find_bigrams(pieces: list[str]) -> np.ndarray:
    """The pairs of neighbours in all pieces, left << 16 | right (uint32), sorted.

    >>> [hex(pair) for pair in find_bigrams(["ab", "c", "bac"])]
    ['0x610062', '0x610063', '0x620061']
    """
    codes = np.frombuffer("\0".join(pieces).encode("utf-32-le"), np.uint32)
    is_basic = (codes > 0) & (codes < NUM_BASIC)  # 0 separates pieces
    return np.unique((codes[:-1] << 16 | codes[1:])[is_basic[:-1] & is_basic[1:]])


def find_contracted(bigrams: np.ndarray, contractions: np.ndarray, first: np.ndarray) -> np.ndarray:
    """More pairs that can't be cut: those that normalisation makes into a bigram by contracting the right side.

    A piece holds "lé", and the text "l", "e" and U+0301, which become "lé". A cut before "e" is decided by "l" and "e"
    alone, so for the bigram (l, é) and the contraction (é, e) the pair (l, e) is added.
    """
    # The right side of a pair is looked up as what it becomes alone.
    contractions = np.unique(contractions & 0xFFFF0000 | first[contractions & 0xFFFF])
    begins, ends = (np.searchsorted(contractions >> 16, bigrams & 0xFFFF, side) for side in ("left", "right"))
    counts = ends - begins
    # All of begins[i] .. ends[i] - 1, for each i. Begins 5, 9 and ends 7, 10, so counts 2, 1 and their sums 2, 3:
    # 0, 1, 2 and 7 - 2, 7 - 2, 10 - 3 add up to 5, 6, 9.
    indices = np.arange(counts.sum()) + np.repeat(ends - np.cumsum(counts), counts)
    contracted: np.ndarray = np.repeat(bigrams, counts) & 0xFFFF0000 | contractions[indices] & 0xFFFF
    return contracted
