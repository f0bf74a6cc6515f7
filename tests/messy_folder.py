"""A folder as people have one: seven languages in seven scripts, each in files with faults of their own.

`python tests/messy_folder.py FOLDER [UDHR.jsonl.gz]` writes it, with made-up words or with the real text of a file of
records (`lang`, `text`). `write_messy_folder` returns what text each language has, so that nothing lost goes unnoticed.

| folder | script | its files |
|---|---|---|
| yo | Latin | wrapped at 60 columns; copies of half of the documents in NFD |
| de | Latin | cp1252, a document a file |
| bg | Cyrillic | UTF-16 with a byte order mark |
| ne | Devanagari | JSON lines, paragraphs in a list two levels deep |
| ka | Georgian | Excel's CSV: byte order mark, semicolons, CRLF, quoted line ends |
| my | Myanmar | pages with a head and a number; a document a line |
| ti | Ethiopic | <|endoftext|> between documents; near copies with another last line |
| el | Greek | one file of 15 bytes |
| empty | - | an empty file, and one of spaces |
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import sys
import textwrap
import unicodedata
from pathlib import Path

LETTERS = {
    "yo": "aáàbdeẹéfgɡiíìjklmnoọóprsṣtuúwy",
    "de": "abcdefghiklmnoprstuvwzäöüß",
    "bg": "абвгдежзийклмнопрстуфхцчшщыьэюя",
    "ne": "अआइउएकखगघचछजझटडतथदधनपबभमयरलवशसह",
    "ka": "აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ",
    "my": "ကခဂဃငစဆဇညတထဒဓနပဖဗဘမယရလဝသဟအ",
    "ti": "ሀሁለሉሐመሙረሩሰሱሸቀቁበቡተቱነኑአኡከኩወዘየደገጠ",
}
STOPS = {"ne": " ।", "my": "။", "ti": "።"}
UDHR_NAMES = {"yo": "yor", "de": "deu", "bg": "bul", "ne": "nep", "ka": "kat", "my": "mya", "ti": "tir"}
Documents = list[list[str]]  # of paragraphs


def make_texts(count: int = 24, seed: int = 0) -> dict[str, Documents]:
    """Made-up documents of each language: frequent words are short, and sentences end as they do in its script."""
    rng, texts = random.Random(seed), dict[str, Documents]()
    for name, letters in LETTERS.items():
        words = ["".join(rng.choices(letters, k=2 + rank // 60)) for rank in range(300)]
        texts[name] = [[_say(rng, name, words) for _ in range(4)] for _ in range(count)]
    return texts


def _say(rng: random.Random, name: str, words: list[str]) -> str:
    """A paragraph."""
    weights, space = [1 / (1 + rank) for rank in range(len(words))], "" if name == "my" else " "
    chosen = (rng.choices(words, weights, k=rng.randint(4, 14)) for _ in range(rng.randint(2, 5)))
    return " ".join(space.join(some).capitalize() + STOPS.get(name, ".") for some in chosen)


def read_texts(path: Path) -> dict[str, Documents]:
    """Real text: documents of four paragraphs."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found = {record["lang"]: record["text"].split("\n") for record in map(json.loads, file)}
    texts = {name: found[code] for name, code in UDHR_NAMES.items()}
    return {name: [lines[at : at + 4] for at in range(0, len(lines), 4)] for name, lines in texts.items()}


def write_messy_folder(folder: Path, texts: dict[str, Documents]) -> None:
    for name in [*texts, "el", "empty"]:
        (folder / name).mkdir(parents=True)
    wrapped = ["\n\n".join(textwrap.fill(text, 60) for text in document) for document in texts["yo"]]
    for number, text in enumerate(wrapped):
        (folder / f"yo/{number:02}.txt").write_text(text, encoding="utf-8")
        if number % 2:
            (folder / f"yo/{number:02}-nfd.txt").write_text(unicodedata.normalize("NFD", text), encoding="utf-8")
    for number, document in enumerate(texts["de"]):
        (folder / f"de/{number:02}.txt").write_bytes("\n".join(document).encode("cp1252", "replace"))
    (folder / "bg/all.txt").write_text("\n\n".join(map("\n".join, texts["bg"])), encoding="utf-16")
    lines = [json.dumps({"data": {"content": {"paragraphs": document}}}) + "\n" for document in texts["ne"]]
    (folder / "ne/crawl.jsonl").write_text("".join(lines), encoding="utf-8")
    table = io.StringIO(newline="")
    csv.writer(table, delimiter=";").writerows(
        [["Nr", "სათაური", "ტექსტი"], *([number, "-", "\n".join(found)] for number, found in enumerate(texts["ka"]))]
    )
    (folder / "ka/export.csv").write_text(table.getvalue(), encoding="utf-8-sig", newline="")
    heads = [f"စာအုပ် ကြီး\n- {number} -\n{' '.join(document)}\n" for number, document in enumerate(texts["my"], 1)]
    (folder / "my/book.txt").write_text("".join(heads), encoding="utf-8")
    copies = [[*document[:-1], f"{document[-1]} {texts['ti'][0][0]}"] for document in texts["ti"][:4]]
    stories = ["\n".join(document) for document in [*texts["ti"], *copies]]
    (folder / "ti/stories.txt").write_text("\n<|endoftext|>\n".join(stories), encoding="utf-8")
    (folder / "el/hello.txt").write_text("Γειά σου.", encoding="utf-8")
    (folder / "empty/a.txt").write_bytes(b"")
    (folder / "empty/b.txt").write_text(" \n \n", encoding="utf-8")


if __name__ == "__main__":
    write_messy_folder(Path(sys.argv[1]), read_texts(Path(sys.argv[2])) if len(sys.argv) > 2 else make_texts())
