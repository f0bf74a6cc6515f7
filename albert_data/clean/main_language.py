"""The language of a corpus by its script, where that decides: Chinese, Japanese, Thai and some more.

In: inputs. Out: a language, or None where several languages share the script, as Latin, or no script has
_LEAST_SHARE of the letters. A sample of the text is read (samples.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from albert_data.clean.documents import clean_documents
from albert_data.config import TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import Input
from albert_data.corpus.samples import read_samples
from albert_data.text.unicode_tables import categories, scripts

_LANGUAGES = {"CJK": "zh", "HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "THAI": "th", "LAO": "lo", "KHMER": "km"}
_LANGUAGES |= {"GREEK": "el", "ARMENIAN": "hy", "GEORGIAN": "ka", "TAMIL": "ta", "TELUGU": "te", "KANNADA": "kn"}
_LANGUAGES |= {"MALAYALAM": "ml", "GUJARATI": "gu", "SINHALA": "si"}
_LEAST_SHARE = 0.75  # of the letters: less is a corpus of several languages
_LEAST_KANA = 0.05  # kana for each Han character: Japanese has more, Chinese none but in names


def find_main_language(inputs: list[Input], text: TextConfig) -> str | None:
    """The language of the inputs by their script. Compiles the kernels that clean text."""
    letters = Counter[str]()
    for sample in read_samples(inputs, text):
        if sample.block is not None:
            lines = clean_documents(sample.block, sample.text, Damage())
            letters.update(count_scripts_of(lines.utf8.tobytes().decode()))
    return name_language(letters)


def count_scripts_of(text: str) -> dict[str, int]:
    """The letters of each script.

    >>> count_scripts_of("Ab, 字。")
    {'CJK': 1, 'LATIN': 2}
    """
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    (kinds, kind_names), (numbers, names) = categories(), scripts()
    is_letter = np.array([name[0] == "L" for name in kind_names])[kinds[codes]]
    counts = np.bincount(numbers[codes[is_letter]], minlength=len(names))
    return {names[i]: int(counts[i]) for i in np.flatnonzero(counts)}


def name_language(letters: Mapping[str, int]) -> str | None:
    """The language of text with so many letters of each script; Han characters beside kana are Japanese.

    >>> name_language({"CJK": 60, "HIRAGANA": 30}), name_language({"CJK": 60, "LATIN": 9}), name_language({"LATIN": 9})
    ('ja', 'zh', None)
    """
    languages = Counter[str | None]()
    for script, count in letters.items():
        languages[_LANGUAGES.get(script)] += count
    if languages["ja"] > _LEAST_KANA * languages["zh"]:
        languages["ja"] += languages.pop("zh", 0)
    found, count = max(languages.items(), key=lambda item: item[1], default=(None, 0))
    return found if count >= _LEAST_SHARE * languages.total() else None
