"""The readers of what a command finds by its name: tokenizers of the library `tokenizers`, models, and what is no file.

A tokenizer.json may hold regular expressions that backtrack and rules that multiply text. A model's folder may name
code.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from albert_data.corpus.inputs import find_inputs
from albert_data.errors import AlbertDataError
from albert_data.interop.scoring import load_masked_lm
from albert_data.runs.figures import read_run
from albert_data.text.escaping import escape_controls, quote
from albert_data.text.output import make_harmless
from albert_data.tokenizer.model import load_tokenizer
from reliability.cases import Case, Oddity, Reader, WrongResult
from reliability.json_mutators import list_slots, mutate_json
from reliability.oddities import plan_oddities
from reliability.read_models import TEXTS, find_words
from reliability.sound import SENTENCES, Sound

REGEXES = ["(a+)+$", "(.*)*x", r"(\w|\p{L})*$", "(?=a)*", "", "[", r"\X*", "(?i)é|É", "(x?){500}", r"(?<=\s)a+"]
DOUBLING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
TEXT_PARTS = ("normalizer", "pre_tokenizer", "decoder")
PIPE, DEVICE, FOLDER, LOOP = b"a FIFO", b"a device", b"a folder", b"a loop of links"


def found_readers(sound: Sound) -> list[Reader]:
    """Return the readers of tokenizer.json, of a model's folder for `score`, and of what is no regular file."""
    exported = (sound.exported / "tokenizer.json").read_bytes()
    seeds = [exported, dump(make_byte_level()), dump(make_wordpiece())]
    folder = ReadFolder(sound)
    return [
        Reader(
            name="tokenizer.json",
            share=40,
            seeds=seeds,
            mutate=mutate_tokenizer,
            read=read_tokenizer,
            oddities=[*plan_oddities(), *tokenizer_oddities(json.loads(exported))],
        ),
        Reader(
            name="a scored tokenizer_config.json",
            share=5,
            seeds=[(sound.exported / "tokenizer_config.json").read_bytes()],
            mutate=lambda rng, data, others: mutate_json(rng, data),
            read=folder.score,
            oddities=plan_oddities(),
        ),
        Reader(
            name="a file's name",
            share=5,
            seeds=[b"a.txt", b"a\nError: forged\n.bin", b"\x1b[2Ja\xff.jsonl", "b\u2028\u202e.gz".encode()],
            read=read_name,
        ),
        Reader(
            name="no regular file",
            share=2,
            seeds=[PIPE, DEVICE, FOLDER, LOOP],
            mutate=lambda rng, data, others: data,
            read=folder.find_odd,
        ),
    ]


def dump(values: Any) -> bytes:
    return json.dumps(values).encode()


# ---- tokenizer.json ----

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_byte_level() -> dict[str, Any]:
    letters = sorted({chr(code) for code in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x143), 0x143)})
    vocab = {piece: i for i, piece in enumerate([*SPECIALS, *letters, "Ġt", "Ġth"])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocab, "merges": [["Ġ", "t"], ["Ġt", "h"]]}
    return {"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level, "model": model}


def make_wordpiece() -> dict[str, Any]:
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    vocab = {piece: i for i, piece in enumerate([*SPECIALS, *words, "##s", "##ing"])}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "vocab": vocab}
    model["max_input_chars_per_word"] = 100
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    normalizer["lowercase"] = False
    splitter = {"type": "BertPreTokenizer"}
    return {"version": "1.0", "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": splitter, "model": model}


def mutate_tokenizer(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Damage a tokenizer.json as JSON, or put rules of text into it."""
    if rng.random() < 0.5:
        return mutate_json(rng, data)
    values = json.loads(data)
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(TEXT_PARTS)
        key = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}[name]
        parts = [values[name]] if values.get(name) else []
        # Of regular expressions fewer: their time is not bounded (docs/explanation/reliability.md).
        parts += [make_rule(rng, name)] * rng.choice((1, 1, 2, 5, 5 if name == "pre_tokenizer" else 40))
        rng.shuffle(parts)
        values[name] = {"type": "Sequence", key: parts}
    if rng.random() < 0.2:
        holder, slot = rng.choice([slot for name in TEXT_PARTS for slot in list_slots(values.get(name))])
        holder[slot] = rng.choice(("", "a", "a" * 5000, None, 7, "▁", REGEXES[0]))
    return dump(values)


def make_rule(rng: Random, part: str) -> dict[str, Any]:
    pattern = (
        {"Regex": rng.choice(REGEXES)} if rng.random() < 0.5 else {"String": rng.choice(("a", " ", "", "the", "é"))}
    )
    content = rng.choice(("", "a", "aa", "the the", " ", "x" * 100, "éé"))
    replace = {"type": "Replace", "pattern": pattern, "content": content}
    level = {"type": "ByteLevel", "add_prefix_space": rng.random() < 0.5, "trim_offsets": True, "use_regex": True}
    if part == "pre_tokenizer":
        behaviour = rng.choice(("Isolated", "Removed", "MergedWithNext", "Contiguous"))
        return rng.choice(({"type": "Split", "pattern": pattern, "behavior": behaviour, "invert": False}, level))
    if part == "decoder":
        return rng.choice((replace, {"type": "ByteFallback"}, {"type": "Strip", "content": "a", "start": 9, "stop": 9}))
    return rng.choice(
        (replace, {"type": "Prepend", "prepend": content or "a"}, {"type": "NFKD"}, {"type": "Lowercase"})
    )


def tokenizer_oddities(sound: dict[str, Any]) -> list[Oddity]:
    """sound: the values of a tokenizer.json that is sound."""

    def of(name: str, **parts: Any) -> Oddity:
        return Oddity(name=name, make=lambda: dump(sound | parts))

    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": REGEXES[0]}, "behavior": "Isolated", "invert": False}
    letters = [DOUBLING | {"pattern": {"String": one}, "content": 2 * two} for one, two in pairwise("abcdefghij")]
    return [
        of(
            "a regex that backtracks",
            pre_tokenizer={"type": "Sequence", "pretokenizers": [split, sound["pre_tokenizer"]]},
        ),
        of("27 rules that double a letter", normalizer={"type": "Sequence", "normalizers": [DOUBLING] * 27}),
        of("a letter becomes the next", normalizer={"type": "Sequence", "normalizers": letters * 4}),
        of("bytes of bytes", pre_tokenizer={"type": "Sequence", "pretokenizers": [level] * 27}),
        of("a decoder that doubles", decoder={"type": "Sequence", "decoders": [DOUBLING] * 27}),
        of("a table that is none", normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        of("a chain of chains", normalizer=_nest({"type": "Sequence", "normalizers": [DOUBLING]}, 300)),
    ]


def _nest(value: dict[str, Any], depth: int) -> dict[str, Any]:
    for _ in range(depth):
        value = {"type": "Sequence", "normalizers": [value]}
    return value


def read_tokenizer(case: Case, data: bytes, folder: Path) -> None:
    """Load a tokenizer and use all of its methods, also on text that makes a regex backtrack."""
    path = folder / "tokenizer.json"
    path.write_bytes(data)
    tokenizer = load_tokenizer(folder if case.number % 2 else path)
    texts = [*TEXTS, "a" * 40 + "b", "a" * 1000]
    ids, offsets = tokenizer.encode(texts)
    assert len(offsets) == len(texts) + 1
    find_words(tokenizer, ids)
    tokenizer.decode(ids[:2000])
    tokenizer.normalise(TEXTS[0])


# ---- folders ----


def read_name(case: Case, data: bytes, folder: Path) -> None:
    """Find a file of any name in a folder, and show all that is said of it: a line stays one, without controls."""
    name = os.fsdecode(data[:200].translate(bytes.maketrans(b"/\0", b"__")).lstrip(b".") or b"a")
    (folder / name).write_text("One sentence.\n")
    lines = [quote(folder / name)]
    try:
        lines += [item.path for item in find_inputs([str(folder)], lines.append)]
    except AlbertDataError as error:
        lines.append(str(error))
    for line in lines:
        shown = make_harmless([line], "utf-8")
        if shown != escape_controls(shown):
            raise WrongResult(f"forged {shown!r:.80}")


class ReadFolder:
    """Reads folders in which one file is replaced."""

    def __init__(self, sound: Sound) -> None:
        self._sound = sound

    def score(self, case: Case, data: bytes, folder: Path) -> None:
        """Load a model as `score` does, and encode some sentences."""
        out = Path(shutil.copytree(self._sound.exported, folder / "model"))
        (out / "tokenizer_config.json").write_bytes(data)
        model, _ = load_masked_lm(out)
        model.encode([*SENTENCES, "a" * 40 + "b", "a" * 2000])

    def find_odd(self, case: Case, data: bytes, folder: Path) -> None:
        """Put what is no regular file where one is looked for, at each place that the kind may have."""
        kinds: dict[bytes, Callable[[Path], object]] = {
            PIPE: os.mkfifo,
            DEVICE: lambda path: path.symlink_to("/dev/zero"),
            FOLDER: Path.mkdir,
            LOOP: lambda path: path.symlink_to(path.name),
        }
        places: dict[str, Callable[[Path], object]] = {
            "state.json": lambda path: find_inputs([str(path.parent)]),
            "dataset_dict.json": lambda path: find_inputs([str(path.parent)]),
            "spiece.model": lambda path: load_tokenizer(path.parent),
            "tokenizer.json": load_tokenizer,
            "vocab.txt": load_tokenizer,
            "run.json": lambda path: read_run(path.parent),
            "config.json": lambda path: load_masked_lm(path.parent),
        }
        for name, read in places.items():
            place = folder / f"of {name}"
            shutil.copytree(self._sound.exported, place)
            (place / "corpus.txt").write_text("One sentence.\n")
            (place / name).unlink(missing_ok=True)
            kinds[data](place / name)
            try:
                read(place / name)
            except AlbertDataError:
                continue
            if data != FOLDER or name not in ("state.json", "dataset_dict.json", "added_tokens.json"):
                raise WrongResult(f"accepted {data.decode()} as {name}")
