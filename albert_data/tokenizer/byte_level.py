"""Byte-level BPE, as of GPT-2, RoBERTa, ModernBERT, OLMo and Llama 3, on the chunk table.

In: a tokenizer.json. Out: ids, token for token what the library `tokenizers` gives. The library itself encodes new
chunks, and a sample of all text again: ids that differ stop the build.

Why cuts are exact. The pre-tokeniser divides text into words by a regular expression, from left to right, and never
looks back; BPE joins bytes inside a word only. So a cut may lie where a word ends whatever stands around:

- before a single space, except beside other white space. No word has a space after another character; the space is a
  part of the word after it, so a chunk after a space is another one than the same chunk without.
- between a letter, a digit and another character. But the apostrophe of "'s" stays with the letters after it, and
  Llama's expression lets any character begin a word of letters, so there no cut lies after one that is neither a letter
  nor a digit.

*Inside words of scripts without spaces*, a whole clause of Chinese, a cut lies between two letters that no piece holds
as neighbours, as no merge can join them. Some pieces hold a part of a character beside another character. A letter that
stands in one is *loose*: no cut lies between it and another letter. With `ignore_merges` a word that is a piece is not
merged, so its parts may have other ids, and words are not cut.

*NFC* composes characters. One that is changed by it, or that it may compose with the one before, gets no cut beside it.

*Added tokens* are found in text before all that. No cut lies between two characters that one holds as neighbours.

Classes of characters are what the library's regular expressions match: its Unicode tables are not ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np

from albert_data.text.unicode_tables import categories
from albert_data.tokenizer.backend import Backend, list_rules
from albert_data.tokenizer.chunks.cutting import AFTER, BEFORE, SOLID, CutRule, make_rule
from albert_data.tokenizer.chunks.encoder import ChunkEncoder, ChunkModel
from albert_data.tokenizer.chunks.lattice import ChunkIds
from albert_data.tokenizer.chunks.table import CERTAIN_LIMIT, NOT_DONE, ChunkRules, fill_in
from albert_data.tokenizer.chunks.trie import make_trie
from albert_data.tokenizer.library import LibraryKind, read_bytes
from albert_data.tokenizer.merging import BEGINS, FOLLOWS, make_merges, merge_texts
from albert_data.tokenizer.sentencepiece.charsmap import NUM_BASIC
from albert_data.tokenizer.tokenizer_json import import_tokenizers

# The expressions of Llama 3 and OLMo 2, and of Qwen 2. That of GPT-2 is built into the library.
_LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_EXPRESSIONS = (_LLAMA, _LLAMA.replace("{1,3}", ""))
_LETTER, _DIGIT, _OTHER = 1, 2, 3  # classes of characters; 0 for white space
_CLASS_CODES = 0x80  # codes of classes in pairs; ASCII has its own codes, and so have letters of scripts without spaces
_FIRST_WIDE = 0x0E00  # Thai: scripts without spaces are above (cutting.py)
_JAMO = slice(0x1100, 0x1200)  # letters that compose to syllables
_CONTINUATIONS = bytes(range(0x80, 0xC0))  # of UTF-8
_BEYOND_ASCII = re.compile("[\u00a1-\u00ff\u0122-\u0143]")  # the byte-level characters of bytes from 0x80 on
_NO_UNKNOWN = -1


def explain_slow(values: dict[str, Any]) -> str | None:
    """Why all text goes through the library, or None if text can be cut."""
    model, rules = values["model"], list(list_rules(values.get("pre_tokenizer")))
    if model.get("type") != "BPE":
        return f"it is a tokenizer.json of {model.get('type')}, and only WordPiece and byte-level BPE are fast there"
    if not _is_known(rules):
        return "its pre_tokenizer divides words by other rules than those of GPT-2, Llama 3 and Qwen 2"
    if other := [rule.get("type") for rule in list_rules(values.get("normalizer")) if rule.get("type") != "NFC"]:
        return f"its normalizer is {other[0]}, and only NFC is fast"
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(name):
            return f"its model has {name}"
    if not isinstance(model["vocab"], dict) or not read_bytes().keys() <= model["vocab"].keys():
        return "its vocabulary lacks single bytes"
    added = _list_matched(values)
    if found := [token["content"] for token in added if not _is_plain(token)]:
        return f"its added token {found[0]!r} depends on the text around it, or has spaces or characters beyond ASCII"
    is_prefixed = rules[-1].get("add_prefix_space", True)
    return "it adds a space after each added token" if added and is_prefixed else None


def _is_known(rules: list[dict[str, Any]]) -> bool:
    """Whether a pre-tokeniser is GPT-2's, or has one of `_EXPRESSIONS`."""
    kinds = [rule.get("type") for rule in rules]
    if kinds == ["ByteLevel"]:
        return bool(rules[0].get("use_regex", True))
    return (
        kinds == ["Split", "ByteLevel"]
        and rules[0].get("pattern") in [{"Regex": expression} for expression in _EXPRESSIONS]
        and rules[0].get("behavior") == "Isolated"
        and not rules[0].get("invert")
        and not rules[1].get("use_regex", True)
        and not rules[1].get("add_prefix_space", True)
    )


def _list_matched(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The added tokens if any may be found in text. Special ones are not, but one may hide another one."""
    added = values.get("added_tokens") or []
    return [] if all(token.get("special") for token in added) else added


def _is_plain(token: dict[str, Any]) -> bool:
    """Whether cuts can avoid an added token. It may be several spaces, as there are no cuts at those."""
    content = token["content"]
    if not token.get("special") and any(token.get(flag) for flag in ("single_word", "lstrip", "rstrip")):
        return False
    return content.isascii() and (" " not in content or (len(content) > 1 and not content.strip(" ")))


class ByteLevelKind(LibraryKind):
    """Byte-level BPE of which text can be cut."""

    @cached_property
    def _chunk_model(self) -> ChunkModel:
        values, specials, backend = self._values, self.specials, self._backend
        merges, divides = make_merges(values["model"], read_bytes()), not values["model"].get("ignore_merges")
        roles = find_roles(values) if divides else np.zeros(NUM_BASIC, np.uint8)
        if self.has_prefix:  # chunks have their spaces
            (rule,) = list_rules(values["pre_tokenizer"])
            backend = Backend({**values, "pre_tokenizer": {**rule, "add_prefix_space": False}}, self._name)

        def learn(texts: list[bytes], is_inner: bool) -> ChunkIds:
            # Only the first chunk of a sentence can begin with a space.
            spaced = texts if is_inner else [text if text.startswith(b" ") else b" " + text for text in texts]
            ids, lengths = merge_texts(spaced, roles, merges)
            ids[specials.is_special[ids]] = specials.unk_id
            rest = np.flatnonzero(lengths == NOT_DONE)
            if len(rest):
                found = self.encode_texts([spaced[i] for i in rest.tolist()], backend)
                ids = fill_in(ids, lengths, found.ids, found.lengths)
            return ChunkIds(ids, lengths, np.full(len(lengths), CERTAIN_LIMIT))

        return ChunkModel(
            rules=ChunkRules(
                cuts=make_cut_rule(values, self.pieces, divides_words=divides),
                trie=make_trie([], [], [], unk_id=_NO_UNKNOWN, vocab_size=len(self.pieces)),
                first_is_inner=int(not self.has_prefix),
            ),
            encode=self.encode_each,
            learn=learn,
            is_compared=True,
        )

    def make_encoder(self) -> ChunkEncoder:
        super().make_encoder()  # checks the unknown piece
        return ChunkEncoder(self._chunk_model)


# ---- cuts ----


def make_cut_rule(values: dict[str, Any], pieces: Sequence[str], *, divides_words: bool) -> CutRule:
    """values: of a tokenizer.json that can be cut (`explain_slow`)."""
    classes, known = classify_characters(), find_known(values)
    flags = np.where(known, BEFORE | AFTER | SOLID, 0).astype(np.uint8)
    if _is_llama(values):
        flags[classes == _OTHER] &= ~np.uint8(AFTER)
    neighbours, loose = find_neighbours(pieces)
    has_code = known & (classes == _LETTER) & divides_words
    has_code[:_FIRST_WIDE] = False
    has_code[list(loose)] = False
    codes = (_CLASS_CODES + classes).astype(np.uint16)
    codes[:_CLASS_CODES] = np.arange(_CLASS_CODES)
    wide = np.flatnonzero(has_code).tolist()
    codes[wide] = wide
    groups = [
        [*np.flatnonzero(classes[:_CLASS_CODES] == one).tolist(), _CLASS_CODES + one]
        for one in (_LETTER, _DIGIT, _OTHER)
    ]
    loose_codes = [_CLASS_CODES + _LETTER, *(code for code in loose if code < _CLASS_CODES)]
    pairs = [
        *(pair for group in groups for pair in product(group, group)),
        *product([ord("'")], groups[0]),
        *product(loose_codes, wide),
        *product(wide, loose_codes),
        *((ord(a), ord(b)) for token in _list_matched(values) for a, b in pairwise(token["content"])),
    ]
    left, right = np.concatenate((np.array(pairs, np.uint32), codes[neighbours])).T.astype(np.uint32)
    return make_rule(flags, codes, codes, left << 16 | right, joins_spaces=False)


def find_neighbours(pieces: Iterable[str]) -> tuple[np.ndarray, set[int]]:
    """The pairs of characters that are neighbours in pieces, and those beside a part of another one, as codes.

    Of the basic plane. Pieces of ASCII alone are left out. Out: int64 [pairs, 2], and loose characters.
    """
    table, pairs, loose = read_bytes(), set[tuple[str, str]](), set[int]()
    for piece in pieces:
        if not _BEYOND_ASCII.search(piece) or not table.keys() >= set(piece):
            continue  # the latter are added tokens
        data = bytes(table[character] for character in piece)
        body = data.lstrip(_CONTINUATIONS)  # without the last bytes of a character
        text = body.decode(errors="ignore")
        head = body[len(text.encode()) :]  # the first bytes of one
        pairs.update(pairwise(text))
        if head:
            loose.update(map(ord, text[-1:]))
        if len(body) < len(data):
            loose.update(map(ord, text[:1]) if text else _complete(head))
    codes = np.array([(ord(a), ord(b)) for a, b in pairs], np.int64).reshape(-1, 2)
    return codes[(codes < NUM_BASIC).all(axis=1)], {code for code in loose if code < NUM_BASIC}


def _complete(head: bytes) -> range:
    """The characters of three bytes that begin with `head`; none if no such character does."""
    if not 0xE0 <= (head or b" ")[0] < 0xF0:
        return range(0)
    code, num_open = head[0] & 0x0F, 6 * (3 - len(head))  # bits
    for byte in head[1:]:
        code = code << 6 | byte & 0x3F
    return range(code << num_open, code + 1 << num_open)


def find_roles(values: dict[str, Any]) -> np.ndarray:
    """What each character of the basic plane can be in a word of letters (merging.py): uint8 [65536]."""
    classes, known = classify_characters(), find_known(values)
    roles = np.where(known & (classes == _LETTER), BEGINS | FOLLOWS, 0).astype(np.uint8)
    if _is_llama(values):
        roles[known & (classes == _OTHER)] = BEGINS
    roles[ord("'")] = 0  # of "'s"
    roles[ord(" ")] = BEGINS
    for token in _list_matched(values):
        if not token["content"].isspace():  # a word has one space at most
            roles[ord(token["content"][-1])] = 0  # the library finds it
    return roles


def _is_llama(values: dict[str, Any]) -> bool:
    """Whether any character that is neither a letter nor a digit may begin a word of letters."""
    return len(list(list_rules(values["pre_tokenizer"]))) > 1


def find_known(values: dict[str, Any]) -> np.ndarray:
    """The characters of the basic plane that may stand beside a cut: bool [65536]."""
    known: np.ndarray = (classify_characters() > 0) & (find_stable() if values.get("normalizer") else True)
    known[0] = False  # it stands for all characters beyond the basic plane
    return known


@cache
def classify_characters() -> np.ndarray:
    """The class of each character of the basic plane: uint8 [65536]."""
    library, classes = import_tokenizers("byte-level BPE"), np.zeros(NUM_BASIC, np.uint8)
    for one, expression in ((_LETTER, r"\p{L}+"), (_DIGIT, r"\p{N}+"), (_OTHER, r"[^\s\p{L}\p{N}]+")):
        split = library.pre_tokenizers.Split(library.Regex(expression), "removed", invert=True)
        found = "".join(word for word, _ in split.pre_tokenize_str("".join(_list_basic())))
        classes[np.frombuffer(found.encode("utf-32-le"), np.uint32)] = one
    classes.flags.writeable = False
    return classes


@cache
def find_stable() -> np.ndarray:
    """Whether NFC leaves a character as it is, and never composes it with the one before it: bool [65536]."""
    numbers, names = categories()
    stable: np.ndarray = ~np.array([name[0] == "M" or name == "Cn" for name in names])[numbers[:NUM_BASIC]]
    stable[_JAMO] = stable[ord("\n")] = False
    normalise = import_tokenizers("byte-level BPE").normalizers.NFC().normalize_str
    characters = [character for character in _list_basic() if character != "\n"]
    for character, found in zip(characters, normalise("\n".join(characters)).split("\n"), strict=True):
        stable[ord(character)] &= character == found
    stable.flags.writeable = False
    return stable


def _list_basic() -> list[str]:
    """The characters of the basic plane."""
    return [chr(code) for code in range(NUM_BASIC) if not 0xD800 <= code < 0xE000]
