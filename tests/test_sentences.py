"""The rule of sentences: hard cases, its slow reference, and what holds of any text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import check_refused, refused
from sentence_reference import describe_line, segment_line

from albert_data import split_sentences
from albert_data.clean.documents import clean_documents
from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block, Origin
from albert_data.corpus.damage import Damage
from albert_data.data import DocumentColumns, Lines, slice_sentences
from albert_data.errors import ConfigError
from albert_data.sentences.abbreviations import normalise_abbreviations
from albert_data.sentences.segmenting import Segmented, make_rule, segment_lines
from albert_data.sentences.text import find_sentences
from albert_data.text.languages import encode_source

LANGUAGES = ("en", "de", "fr", "ru", "el", "hy", "am", "hi", "ar", "ur", "zh", "ja", "ko", "th", "my", "und")
WITHOUT_SPACES = ("zh", "ja", "my", "km")
# What the rule looks at, words of every word class, and letters of every character class.
WORDS = """
. .. ... …  ! ? ?! 。 ！ ？ ． । ۔ ؟ ։ ። ፡ ; : , | 、 - – — * / · • ⁃
" ' “ ” ‘ ’ „ ‚ « » ‹ › 「 」 『 』 《 》 ( ) （ ） [ ] 【 】 ¿ ¡ [1] [12] :) ;-) :-( ² \u0301 😀 \U00011047
a b i I A B x X é É z 5 12 1999 1. 2. 3. 1) 2) a. b. II. IV. 3rd it's I'm don’t ’Twas
Mr. Dr. No. no. Vol. p. etc. Inc. U.S. U. S. p.m. a.m. e.g. Ph.D. Co. J. R. z. B. z.B. Nr.
The He It At And and or you said cried Tom Smith Januar usw. г. т. е. Он д. Хлеб хлеб τι κ. Ο
中 文 他说 说 と あ ア 가 그는 네. د. محمد है डॉ. वह ए. پی۔ ها ბ. ნა ა ሀ ት Ա ա ກ ก ကာ
ft. ii. Will. Robt. was. it. is. rep.
www.a.com http://a.com a@b.c file.txt 3.14 ３．１４ 1,000.5 (a.) “A.” “A!” ‘A?’ 'A.' "A." «A.» 「A。」 (A. B.)
"""
LOWER_WORDS = """
. ! ? " ' “ ” ( ) [ ] ... - , a b i ii. ft. no. p. etc. p.m. e.g. u. s. 5. 1. 2.
was. it. is. he said x.y. o'clock. é ə. 中 문.
"""
PIECES = [*WORDS.split(), *5 * [" "], "  ", "\t", "\u00a0", "\u3000", "\u2009", "\u200b"]
lines = st.lists(st.sampled_from(PIECES) | st.sampled_from(" .A"), max_size=40).map("".join)
lower_lines = st.lists(st.sampled_from([*LOWER_WORDS.split(), *10 * [" "]]), max_size=40).map("".join)
NUMBERED = ["Article", "ARTIGO", "5", "27", "XII.", "V", "1º", "२५", "第24条", "-", ".", ",", "§"]
numbered = st.lists(st.sampled_from(NUMBERED), max_size=4).map(" ".join)
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def read_cases() -> list[tuple[str, str]]:
    """Pairs of a language and a text with a bar where a sentence ends."""
    cases, language = [], ""
    for line in Path(__file__).with_name("sentence_cases.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            language = line.strip("[]")
        elif line and not line.startswith("#"):
            cases.append((language, line))
    return cases


def join(case: str, language: str) -> str:
    """The text of a case, with what stands between sentences in its language."""
    return case.replace("|", "" if language in WITHOUT_SPACES else " ")


def read(texts: list[str], languages: list[str] | None = None) -> Lines:
    """Lines, each a document of its own."""
    parts = [text.encode() + b"\n" for text in texts]
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    codes = None if languages is None else np.array([encode_source(code) for code in languages], np.uint32)
    return Lines(
        utf8=np.frombuffer(b"".join(parts), np.uint8),
        line_offsets=offsets,
        document_offsets=np.arange(len(texts) + 1),
        columns=DocumentColumns(np.zeros(len(texts), np.uint64), codes),
    )


def segment(texts: list[str], language: str = "en", languages: list[str] | None = None) -> list[list[str]]:
    found = find_sentences(read(texts, languages), TextConfig(language=language))
    parts = [part.decode() for part in slice_sentences(found.utf8, found.sentence_begins, found.sentence_ends)]
    bounds = found.document_offsets.tolist()
    return [parts[begin:end] for begin, end in zip(bounds, bounds[1:], strict=False)]


def canonical(text: str) -> str:
    return " ".join(text.split()) or "-"


# ---- cases ----


@pytest.mark.parametrize(("language", "case"), read_cases())
def test_hard_cases(language, case):
    text = join(case, language)
    assert split_sentences(text, language) == segment_line(text, language) == case.split("|")


# ---- the reference ----


@settings(max_examples=100)
@given(
    st.sampled_from(LANGUAGES),
    st.lists((lines | lower_lines | numbered | anything).map(canonical), min_size=1, max_size=8),
)
@example("en", ["“" * 20 + "A. B.” C. D.”", "(" * 17 + "A. B" + ")" * 17 + " C."])
@example("en", ["“A" + "b" * 248 + ". C.” D.", "“A" + "b" * 249 + ". C.” D.", "“A" + "b" * 250 + ". C.” D."])
@example("en", ["x" * 46 + "Co. The", "x" * 47 + ". The", "x" * 49 + ". the", "A" + "\u0301" * 30 + ". B. C"])
@example("de", ["Am 5. Mai. Am 55. Mai. Am 555. Mai. Am 5. 5. 2000. Der XIV. Ludwig."])
@example("en", ["1. A 2. B 4. C", "1.) A 2.) B", "1) A 2. B 2) C", "• A • B", "• 1. A • 2. B", "（1） A （2） B 2） C"])
@example("en", ["“Why so?”—“Why not?” said Anna.—“Because.”"])  # a speaker after a dash begins a sentence
def test_sentences_and_kinds_of_lines_are_those_of_the_reference(language, texts):
    source = read(texts)
    found = find_sentences(source, TextConfig(language=language))
    assert segment(texts, language) == [segment_line(text, language) for text in texts]
    assert not found.is_heading.any(), "each document is one line"
    kinds = np.zeros(len(texts), np.uint8)
    lines = Segmented(np.zeros(9999, np.int64), np.zeros(9999, np.int64), np.zeros(len(texts), np.int64), kinds)
    segment_lines(make_rule(language)._replace(utf8=source.utf8), source.line_offsets, lines, 0)
    assert kinds.tolist() == [describe_line(text, language) for text in texts]


# ---- any text ----


@given(st.sampled_from(LANGUAGES), st.lists((lines | anything).map(canonical), min_size=1, max_size=5))
def test_a_sentence_depends_on_its_line_alone(language, texts):
    assert segment(texts, language) == [segment([text], language)[0] for text in texts]


@given(st.sampled_from(LANGUAGES), (lines | anything).map(canonical))
def test_only_white_space_is_lost(language, text):
    def strip_all(part: str) -> str:
        return "".join(c for c in part if c != " ")

    sentences = segment([text], language)[0]
    assert strip_all("".join(sentences)) == strip_all(text)
    assert sentences == [text] or all(sentence and sentence == sentence.strip() for sentence in sentences)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("NBSP.\u00a0Here. It is.\u3000", ["NBSP.", "Here.", "It is."]),
        ("\u3000\u3000Indented.", ["Indented."]),
        ("Two  spaces.\u2009\u00a0Here.", ["Two spaces.", "Here."]),
        ("\x01It is.\u00a0\x92Yes.\x01", ["\x01It is.", "\x92Yes.\x01"]),
    ],
)
def test_no_white_space_stands_around_a_sentence(text, sentences):
    assert split_sentences(text) == sentences == segment_line(canonical(text), "en")


@given(st.lists(st.tuples(lines.map(canonical), st.sampled_from(LANGUAGES)), min_size=1, max_size=8))
def test_each_document_is_segmented_by_the_rule_of_its_language(documents):
    texts, languages = map(list, zip(*documents, strict=True))
    assert segment(texts, "en", languages) == [segment([text], language)[0] for text, language in documents]


# ---- headings ----


@pytest.mark.parametrize(
    ("document", "marked"),
    [
        (["The Farm", "It was old."], [True, False]),
        (["Chapter I. The Farm", "It was old. It stood."], [True, True, False, False]),
        (["Book", "Part", "Chapter", "It was old."], [True, True, True, False]),
        (["One", "two", "three", "four", "It was old."], [False] * 5),
        (["It was old.", "The End"], [False, False]),
        (["He came in. He said:", "“Hello.”"], [True, True, False]),
        (["He came in, and it was very late in the evening. It" + 30 * " it", "No."], [False, True, False]),
        (["x" * 201, "It was old."], [False, False]),
        (["x" * 201 + ":", "It was old."], [True, False]),
        (["It was so. She" + 60 * " very" + " said:", "“Hello.”"], [False, True, False]),
        (["他" * 70 + "说：", "你好。"], [True, False]),
        (["She sang:", "One", "two", "three", "four"], [True] + [False] * 4),
        (["One:", "Two:", "Three:", "Four:", "Five"], [False, False, False, True, False]),
        (["It was old.", "The end:"], [False, False]),
        (["Is it?", "It is!", "“Yes.”", "(No.)", "Or…", "So"], [False] * 6),
        (["第一章", "今天很冷。"], [True, False]),
        (["24.", "It was old.", "२५.", "It was cold.", "Chapter XII.", "It was so."], [True, False] * 3),
        (["Article 1º", "All are equal", "Article 2", "All are free"], [True, False, True, False]),
        (["One:", "1", "2", "3", "4", "Five"], [False, False, False, False, True, False]),
        (["The Farm", "It was " + 66 * "old "], [True, False]),
        (["The Farm", "Its name", "was old,", "and so on, ", "and so on"], [True, True, False, False, False]),
        (["He, " + 66 * "who " + "said,", "“No.”"], [True, False]),
        (["He, " + 66 * "who " + "said—", "“No.”"], [True, False]),
        (["He, " + 66 * "who " + "said,", "and so on."], [False, False]),
        (["“He, " + 66 * "who " + "said—”", "“No.”"], [False, False]),
        (["“He, " + 66 * "who " + "said,", "“or who had said,", "“No.”"], [False, True, False]),
        (["ปฏิญญา", "สิทธิ", "มนุษยชน", "ทั้งหลาย"], [False] * 4),
    ],
)
def test_headings_belong_with_the_next_sentence(document, marked):
    text = "\n".join(document)
    assert find_headings(f"{text}\n\n{text}") == marked + marked, "and never with that of another document"


def test_lines_that_are_sentences_are_no_headings():
    assert find_headings("The Farm\nIt was old.", sentences="lines") == [False, False]


def find_headings(text: str, sentences: str = "prose") -> list[bool]:
    config = TextConfig(sentences=sentences)
    lines = clean_documents(Block(text.encode(), Origin("", "txt")), config, Damage())
    found: list[bool] = find_sentences(lines, config).is_heading.tolist()
    return found


# ---- abbreviations of the user ----

ADDED = "en pat.\nen z. B.\nde bspw\nka შპს."


@settings(max_examples=40)
@given(
    st.sampled_from(["en", "de", "ka", "fr"]),
    st.lists(st.sampled_from(["pat.", "Z.B.", "bspw.", "შპს.", "The", "Ten", "ათი", "3", "z.", "B."]), max_size=9),
)
def test_added_abbreviations_are_followed_as_by_the_reference(language, words):
    text, added = canonical(" ".join(words)), normalise_abbreviations(ADDED.encode())
    assert split_sentences(text, language, ADDED) == segment_line(text, language, added)


def test_an_added_abbreviation_ends_a_sentence_only_before_a_starter_of_its_own_language():
    text = "Seen by pat. Smith here. Told to pat. The end."
    assert split_sentences(text) == ["Seen by pat.", "Smith here.", "Told to pat.", "The end."]
    assert split_sentences(text, "en", "en pat.") == ["Seen by pat. Smith here.", "Told to pat.", "The end."]
    assert split_sentences(text, "fr", "en pat.") == split_sentences(text, "fr")


@given(st.lists(st.tuples(st.sampled_from(["de", "deu", "kea"]), st.text("aÉზ-'", min_size=1, max_size=9)), min_size=1))
def test_abbreviations_have_one_form_whatever_their_order_and_comments(pairs):
    lines = [f"{code}\t{word}.  # why" for code, word in pairs]
    found = normalise_abbreviations("\n".join(lines).encode())
    assert found == normalise_abbreviations("\r\n\r\n".join(reversed(lines)).encode())
    assert found == normalise_abbreviations(found.encode())
    assert set(found.splitlines()) == {f"{code[:2] if code == 'deu' else code} {word}" for code, word in pairs}


@refused(
    (b"en ok.\nde,bspw.", ConfigError, "abbreviations, line 2 & 'de,bspw.' & such as: de bspw."),
    (b"en ok.\nxx a.", ConfigError, "abbreviations, line 2 & 'xx'"),
    (b"\n\nde", ConfigError, "abbreviations, line 3 & such as: de bspw."),
    (b"de ...", ConfigError, "abbreviations, line 1 & '...' is none"),
    (b"de v. Chr.", ConfigError, "abbreviations, line 1 & 'v. Chr.' is none & single letters"),
    (b"de " + 49 * b"a", ConfigError, "abbreviations, line 1 & aaaa & 48 bytes"),
    (b"# ok\nde M\xfcn.", ConfigError, "abbreviations, line 2 & utf-8"),
    ("de bspw.".encode("utf-16"), ConfigError, "abbreviations, line 1 & utf-8"),
    (b" \n# nothing\n", ConfigError, "abbreviations holds no abbreviation"),
    (b"de bspw.\n" * 120_000, ConfigError, "abbreviations has over 65,536 bytes"),
)
def test_what_is_no_list_of_abbreviations_is_refused_by_its_line(call, kind, named):
    check_refused(lambda: normalise_abbreviations(call), kind, named)
