"""A vocabulary depends on the set of sentences and the settings alone, and reports what it was learnt from.

Its folder replaces only one that `vocab` wrote, and a full disk leaves the older one intact."""

from __future__ import annotations

import json
import os
import random
import string
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import numpy as np
import pytest
from build_fixtures import InlineEngine
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused, refused
from test_tokenizer import as_text

from albert_data import split_sentences
from albert_data.cli.main import run
from albert_data.config import MODEL_TYPES, BuildConfig, TextConfig, VocabConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.corpus.mixtures import find_sources
from albert_data.errors import AlbertDataError, ConfigError, InputError, OutputError, TokenizerError
from albert_data.jobs.engine import Engine, MultiprocessEngine
from albert_data.library.building import train_vocab
from albert_data.pipeline.build import build_shards
from albert_data.text.unicode_tables import category, script
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.sentencepiece.charsmap import find_base
from albert_data.vocab import learning
from albert_data.vocab.alphabet import choose_alphabet, find_lost_scripts, measure_unspaced
from albert_data.vocab.counting import NUM_CODES, CharacterCounts, NormalCounter, NormalRule
from albert_data.vocab.folder import FILES, is_saved, save_vocabulary
from albert_data.vocab.learning import learn_vocabulary
from albert_data.vocab.report import VocabReport
from albert_data.vocab.sampling import SentenceSample, select_sentences
from albert_data.vocab.training import TrainedModel, VocabularyTooLarge

DOCUMENTS = fixtures.make_documents(80, seed=4)
CAPPED = 5_000


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 13):
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    fixtures.write_corpus(folder, DOCUMENTS, "txt", random.Random(0))
    return folder


def learn(names: Path | str, engine: Engine | None = None, shrink: bool = False, **settings: Any) -> VocabReport:
    text = TextConfig(strict=settings.pop("strict", False), sentences=settings.pop("sentences", "prose"))
    config = VocabConfig(**{"vocab_size": 140, "model_type": "bpe", **settings})
    return learn_vocabulary(find_inputs([str(names)]), text, config, engine or InlineEngine(), shrink=shrink)


@pytest.fixture(scope="module")
def learnt(corpus: Path) -> Callable[..., VocabReport]:
    """Learns from the corpus, once for equal settings."""
    return cache(partial(learn, corpus))


@pytest.fixture(scope="module")
def tokenizer_of(learnt: Callable[..., VocabReport]) -> Callable[..., Tokenizer]:
    return lambda **settings: Tokenizer(learnt(**settings).trained.model, "learnt")


BOTH_TYPES = pytest.mark.parametrize("model_type", MODEL_TYPES)

# ---- a function of the sentences ----


@pytest.mark.parametrize(("model_type", "sample_bytes"), [("unigram", CAPPED), ("bpe", 64_000_000)])
def test_order_layout_workers_and_copies_change_no_byte_of_the_model(model_type, sample_bytes, learnt, tmp_path):
    settings = {"model_type": model_type, "sample_bytes": sample_bytes}
    for workers, (layout, times) in enumerate({"txt.zst": 1, "mixed": 7}.items(), 1):
        fixtures.write_corpus(tmp_path / layout, DOCUMENTS * times, layout, random.Random(workers))
        assert learn(tmp_path / layout, MultiprocessEngine(workers), **settings).trained == learnt(**settings).trained


def test_stdin_changes_no_byte_of_the_model(learnt, monkeypatch):
    fixtures.set_stdin(monkeypatch, fixtures.to_jsonl(DOCUMENTS[::-1]))
    assert learn("-", MultiprocessEngine(2)).trained == learnt().trained


def test_the_seed_matters_only_where_there_is_more_text_than_the_sample_holds(tokenizer_of):
    small, whole = ([tokenizer_of(seed=n, sample_bytes=size) for n in (0, 1)] for size in (CAPPED, 64_000_000))
    assert small[0].model != small[1].model
    assert whole[0].pieces == whole[1].pieces


@pytest.mark.parametrize("sample_bytes", [64_000_000, 2000])
def test_a_repeated_sentence_is_in_the_sample_once(sample_bytes, tmp_path):
    """Of a corpus that repeats itself so much that it is read again for its other sentences, too."""
    lines = [f"Sentence {number % 50} of fifty." for number in range(5000)]
    (tmp_path / "in.txt").write_text("\n\n".join(lines))
    report = learn(tmp_path / "in.txt", vocab_size=110, sample_bytes=sample_bytes)
    assert (report.trained.num_sentences, report.num_documents) == (50, 5000)


hashed_sentences = st.dictionaries(st.binary(max_size=40), st.integers(1, 40) | st.integers(1, 2**64 - 1), max_size=60)


@given(hashed_sentences, st.integers(1, 300), st.randoms(use_true_random=False))
def test_a_sample_holds_as_many_of_the_smallest_hashes_as_fit_in_any_order(found, max_bytes, rng):
    repeated = rng.choices(list(found.items()), k=len(found)) if found else []
    shuffled = rng.sample([*found.items(), *repeated], len(found) + len(repeated))
    sample, at = SentenceSample(max_bytes), 0
    while at < len(shuffled):
        size = rng.randint(1, 9)
        sample.add({sentence: key for sentence, key in shuffled[at : at + size] if key <= sample.limit})
        at += size
    assert sample.sentences() == plain_sample(found, max_bytes)
    assert sample.is_full


@given(hashed_sentences, st.integers(1, 300), st.floats(0, 1))
def test_a_sample_of_the_smallest_hashes_that_is_full_is_that_of_all(found, max_bytes, share):
    sample = SentenceSample(max_bytes, share)
    limit = sample.limit
    sample.add({sentence: key for sentence, key in found.items() if key <= limit})
    if sample.is_full:
        assert sample.sentences() == plain_sample(found, max_bytes)
    else:
        assert share < 1


def plain_sample(found: dict[bytes, int], max_bytes: int) -> list[bytes]:
    """The sentences with the smallest hashes; sentences with equal hashes are in together or not at all."""
    chosen: list[bytes] = []
    for key in sorted(set(found.values())):
        chosen_next = chosen + sorted(sentence for sentence, other in found.items() if other == key)
        if sum(map(len, chosen_next)) > max_bytes:
            break
        chosen = chosen_next
    return chosen


# ---- what is learnt ----


@BOTH_TYPES
def test_the_special_pieces_have_the_first_five_ids(model_type, tokenizer_of):
    learnt = tokenizer_of(model_type=model_type)
    assert learnt.pieces[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert list(learnt.specials.to_dict().values()) == [0, 1, 2, 3, 4]
    assert learnt.vocab_size == 140
    ids, _ = learnt.encode(["a [MASK] and [CLS] <pad>"])
    assert not learnt.specials.is_special[ids].any()
    assert learnt.decode(learnt.encode(["people walked"])[0]) == "people walked"


def test_settings_of_a_model_are_followed(tokenizer_of):
    unigram, cased = (tokenizer_of(model_type=kind) for kind in MODEL_TYPES)
    assert unigram.pieces != cased.pieces
    assert cased.encode(["RIVER"])[0].tolist() != cased.encode(["river"])[0].tolist()
    uncased = tokenizer_of(cased=False)
    assert uncased.encode(["RIVER Ünïcode"])[0].tolist() == uncased.encode(["river ünïCODE"])[0].tolist()
    ordinary = "".join(uncased.pieces[5:])
    assert ordinary == ordinary.lower()
    assert set(string.ascii_lowercase + string.digits + string.punctuation) <= set(uncased.pieces)
    covering = tokenizer_of(character_coverage=1.0)
    assert covering.unk_id not in covering.encode([" ".join(DOCUMENTS)])[0]


@pytest.mark.parametrize(("model_type", "character_coverage"), [("unigram", 0.98), ("bpe", 0.98), ("bpe", 1.0)])
def test_required_characters_have_a_piece_even_if_the_text_has_none_of_them(model_type, character_coverage, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(["aaa bbb abab"] * 20))
    settings = {"model_type": model_type, "character_coverage": character_coverage, "vocab_size": 103}
    learnt = Tokenizer(learn(tmp_path, required_chars="é한", **settings).trained.model, "learnt")
    assert {*string.printable.strip(), "é", "한", "▁"} <= set(learnt.pieces)
    assert learnt.unk_id not in learnt.encode([string.printable + "é한"])[0]


def test_lost_characters_are_reported_with_counts_and_are_unknown(tmp_path):
    text = "Plain words here. " * 3000 + "é é ï ▅ x\ufb01x ..."
    (tmp_path / "in.txt").write_text(text)
    report = learn(tmp_path, character_coverage=0.9999, vocab_size=101)
    assert list(report.alphabet.lost.items()) == [(0xE9, 2), (0xEF, 1), (0x2585, 1)]
    learnt = Tokenizer(report.trained.model, "")
    pieces = {piece for piece in learnt.pieces[5:] if len(piece) == 1}
    assert pieces == set(report.alphabet.characters)
    assert [learnt.unk_id in learnt.encode([character])[0] for character in "éï▅xﬁ"] == [True, True, True, False, False]
    told = " ".join(" ".join(report.describe_choices()).split())
    assert "3 others are lost, 4 times" in told
    assert "é 2, ï 1, ▅ 1" in told
    assert "--character-coverage 1.0 keeps all, --required-chars those that you name" in told


def test_characters_are_chosen_from_the_whole_corpus_and_not_from_the_sample(tmp_path):
    lines = [f"line number {number} has {chr(0x4E00 + number % 40)}" for number in range(2000)]
    fixtures.write_corpus(tmp_path, lines, "jsonl", random.Random(0))
    report = learn(tmp_path, sample_bytes=1_000, vocab_size=200)
    assert report.trained.num_sentences < 60
    assert not report.alphabet.lost
    pieces = Tokenizer(report.trained.model, "").pieces
    assert {chr(0x4E00 + number) for number in range(40)} <= set(pieces)


def test_text_in_scripts_without_spaces_has_no_dummy_prefix_unless_one_is_asked_for(tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(["我们今天学习 AB。", "老师写字。", "山水很好"] * 30))
    for asked, expected in ((None, False), (True, True), (False, False)):
        report = learn(tmp_path, dummy_prefix=asked, vocab_size=125)
        assert report.config.dummy_prefix is expected
        assert Tokenizer(report.trained.model, "").normalise("山").startswith("▁") is expected
    (tmp_path / "in.txt").write_text("\n".join(["words with spaces 山"] * 30))
    assert learn(tmp_path, vocab_size=110).config.dummy_prefix is True


# ---- sizes that can't be ----


@BOTH_TYPES
def test_the_error_for_a_size_that_cannot_be_names_the_size_that_works(model_type, learnt):
    kept = {"model_type": model_type}
    with pytest.raises(VocabularyTooLarge, match=r"100,000 pieces is larger than the text supports") as refusal:
        learnt(vocab_size=100_000, **kept)
    largest = refusal.value.largest
    assert f"--vocab-size {largest}" in str(refusal.value)
    report = learnt(vocab_size=100_000, shrink=True, **kept)
    assert report.config.vocab_size == Tokenizer(report.trained.model, "").vocab_size == largest > 140
    assert learnt(vocab_size=largest, **kept).trained == report.trained
    with pytest.raises(VocabularyTooLarge):
        learnt(vocab_size=largest + 1, **kept)
    with pytest.raises(TokenizerError, match=r"20 pieces is smaller than the (\d+) .*--vocab-size") as refused:
        learnt(vocab_size=20, **kept)
    assert "95 required ones (printable ASCII, --required-chars)" in str(refused.value)
    smallest = int(str(refused.value).split("smaller than the ")[1].split()[0])
    learnt(vocab_size=smallest, **kept)


# ---- what is told ----


def test_a_text_of_one_long_sentence_is_learnt_from(tmp_path):
    text = "".join(random.Random(0).choices("ACGT", k=30_000))
    (tmp_path / "in.txt").write_text(text)
    trained = learn(tmp_path, model_type="unigram", vocab_size=230, shrink=True).trained
    assert trained.num_bytes == len(text.encode())
    assert trained.num_sentences == -(-len(text.encode()) // 4192)
    assert set("ACGT") <= set("".join(Tokenizer(trained.model, "").pieces))


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("x" * 4192 + " y", [4192, 1]),
        (" ".join(f"word{number:06}" for number in range(800)), [4190, 4190, 417]),
        ("a " + "x" * 5000 + " b", [1, 4192, 810]),
        ("".join(map(chr, range(0x4E00, 0x4E00 + 3000))), [4191, 4191, 618]),
    ],
)
def test_a_long_sentence_is_cut_at_spaces_or_between_characters(text, lengths):
    parts = [part.decode() for part in select_sentences(as_text(["Short.", text]), 0, 2**64 - 1)]
    assert [len(part.encode()) for part in parts] == [6, *lengths]
    assert "".join(parts).replace(" ", "") == f"Short.{text}".replace(" ", "")


def test_settings_pieces_and_model_are_saved_together(learnt, tmp_path):
    report, out = learnt(), tmp_path / "new/vocab"
    settings = save_vocabulary(out, report)
    assert {path.name for path in out.iterdir()} == {"spiece.model", "pieces.txt", "vocab.json"}
    assert json.loads((out / "vocab.json").read_text()) == settings
    assert settings["dummy_prefix"] is True
    assert settings["characters"]["lost"] == [[chr(code), count] for code, count in report.alphabet.lost.items()]
    assert settings["documents"] == len(DOCUMENTS)
    assert settings["text_bytes"] == sum(len(fixtures.canonical(document)) for document in DOCUMENTS)
    assert (out / "pieces.txt").read_text().split("\n")[:-1] == load_tokenizer(out).pieces
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file can't be written: File exists; name another folder"):
        save_vocabulary(tmp_path / "file", report)


def test_damage_is_counted_and_refused_with_strict(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(fixtures.to_jsonl(DOCUMENTS) + b'{"text": \n{"txt": "no"}\n')
    assert learn(path).damage == {"malformed_json": 1, "missing_field": 1}
    with pytest.raises(InputError, match=f"in.jsonl, byte {len(fixtures.to_jsonl(DOCUMENTS))}: malformed json"):
        learn(path, strict=True)


@refused(
    ((" \n\n", {}), InputError, "the corpus holds no document"),
    (
        ("x" * 2000, {"sample_bytes": 1000}),
        TokenizerError,
        "no sentence & in 1,000 bytes & --sample-bytes",
    ),
    (("text", {"required_chars": "a▅"}), TokenizerError, "required_chars holds U+2585 & SentencePiece reserves"),
)
def test_what_cannot_be_learnt_from_is_refused(tmp_path, call, kind, named):
    (tmp_path / "in.txt").write_text(call[0])
    check_refused(lambda: learn(tmp_path, **call[1]), kind, named)


@refused(
    ({"vocab_size": 15}, ConfigError, "vocab_size is 15 & 16 to 1000000"),
    ({"model_type": "word"}, ConfigError, "model_type is 'word' & unigram, bpe"),
    ({"character_coverage": float("nan")}, ConfigError, "character_coverage is nan & 0.98 to 1.0"),
    ({"sample_bytes": 999}, ConfigError, "sample_bytes is 999 & 1000 to 4000000000"),
    ({"seed": -1}, ConfigError, "seed is -1 & 0 to"),
    ({"required_chars": "\udcff"}, ConfigError, "required_chars is not valid UTF-8"),
)
def test_settings_out_of_range_name_what_is_allowed(call, kind, named):
    check_refused(lambda: VocabConfig(**call), kind, named)


# ---- the folder ----


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs `vocab` on in.txt in a folder with that file, for vocabularies of some number of pieces in out."""
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("\n\n".join(DOCUMENTS[:30]))
    words = ["vocab", "in.txt", "-o", "out", "--workers", "1", "--vocab-size"]
    return lambda num_pieces, *options: run([*words, str(num_pieces), *options])


def test_another_vocabulary_is_replaced_only_if_the_user_says_so(command, capsys):
    assert command(130) == 0
    before = fixtures.digest_folder(Path("out"))
    for options, named in (
        ((140,), "vocab_size is 130 there and 140 here"),
        ((130, "--model-type", "bpe"), "model_type is 'unigram' there and 'bpe' here"),
        ((130, "--no-dummy-prefix"), "dummy_prefix is True there and False here"),
        ((130, "--documents", "file", "--drop-repeated-lines", "2"), "its text was another"),
    ):
        if "file" in options:
            Path("in.txt").write_text("\n\n".join(DOCUMENTS[30:60]))
        assert command(*options) == 1
        said = capsys.readouterr().err
        assert f"out holds another vocabulary, of 130 pieces (unigram): {named}; name another folder" in said
        assert fixtures.digest_folder(Path("out")) == before
    assert command(140, "--overwrite") == 0
    assert command(140) == 0  # the same
    assert len(Path("out/pieces.txt").read_text().splitlines()) == 140
    assert sorted(os.listdir("out")) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [b"mine", b'{"files": {"a": "b"}, "mine": 1}'])
def test_a_file_of_somebody_else_stops_the_training(name, content, command, capsys):
    Path("out").mkdir()
    Path("out", name).write_bytes(content)
    assert command(130) == 1
    assert f"out/{name} was not written by `vocab`" in capsys.readouterr().err
    assert Path("out", name).read_bytes() == content
    assert os.listdir("out") == [name]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_edited_stops_the_training(name, command, learnt, capsys):
    save_vocabulary(Path("out"), learnt())
    path = Path("out", name)
    edited = path.read_bytes().replace(b"3", b"4", 1)
    path.write_bytes(edited)
    assert command(140) == 1
    assert "was not written by `vocab`, or was changed since" in capsys.readouterr().err
    assert path.read_bytes() == edited


def test_a_full_disk_leaves_the_older_vocabulary_whole(learnt, tmp_path, monkeypatch):
    out, newer = tmp_path / "out", learnt(vocab_size=130)
    save_vocabulary(out, learnt())
    before, calls = fixtures.digest_folder(out), []

    def fill_up(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill_up)
        with pytest.raises(OutputError, match="out: No space left on device; an older one there is unchanged; free"):
            save_vocabulary(out, newer, overwrite=True)
    assert fixtures.digest_folder(out) == before
    save_vocabulary(out, newer, overwrite=True)


@pytest.mark.parametrize("step", range(6))
def test_a_vocabulary_that_was_killed_while_it_was_replaced_is_still_ours(step, learnt, tmp_path, monkeypatch):
    out, newer, steps = tmp_path / "out", learnt(vocab_size=130), 0
    save_vocabulary(out, learnt())

    def kill_at(function: Any) -> Any:
        def call(*paths: Any, **options: Any) -> Any:
            nonlocal steps
            if any(Path(path).name in FILES for path in paths):
                steps += 1
                if steps > step:
                    raise SystemExit("killed")
            return function(*paths, **options)

        return call

    with monkeypatch.context() as context:
        context.setattr(os, "replace", kill_at(os.replace))
        context.setattr(Path, "unlink", kill_at(Path.unlink))
        with pytest.raises(SystemExit):
            save_vocabulary(out, newer, overwrite=True)
    assert steps == step + 1
    save_vocabulary(out, newer, overwrite=step == 0)  # later ones left no finished vocabulary
    assert is_saved(out)


def test_train_vocab_and_the_command_write_the_same_beside_files_of_other_programs(command):
    Path("out").mkdir()
    Path("out/.0123456789abcdef.tmp").write_bytes(b"mine")
    Path("out/.albert-data-0123456789abcdef.tmp").write_bytes(b"of a killed run")
    assert command(130) == 0
    assert sorted(os.listdir("out")) == sorted([*FILES, ".0123456789abcdef.tmp"])
    report = train_vocab(Path("in.txt"), "from-python", config=VocabConfig(vocab_size=130), workers=1)
    assert Path("out/spiece.model").read_bytes() == report.trained.model
    Path("out/.0123456789abcdef.tmp").unlink()
    assert fixtures.digest_folder(Path("from-python")) == fixtures.digest_folder(Path("out"))


def test_train_vocab_raises_errors_of_ours_alone(command, monkeypatch):
    with pytest.raises(InputError, match=r"missing\.txt"):
        train_vocab("missing.txt", "out")
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
    with pytest.raises(AlbertDataError, match="Read-only file system"):
        train_vocab("in.txt", "out")


RULES = [NormalRule(True), NormalRule(False)]
# Letters, marks that join them, ligatures, Hangul in parts, wide and invisible characters, several planes.
characters = st.sampled_from(
    "aAeé z09~\u0301\u0308\u0327ßŒﬁ①㌔ﷺが\u3099か\u1100\u1161\u11a8한ＡΩ\u00a0\u200b\ufeff\ufffd\x00▁▅山😀𝐀"
)
any_character = characters | st.characters(exclude_categories=["Cs"])
texts = st.lists(st.text(any_character, max_size=20), max_size=8)


def plain_counts(sentences: list[str], rule: NormalRule) -> dict[int, int]:
    return dict(Counter(ord(c) for sentence in sentences for c in rule.normalise(sentence).replace(" ", "▁")))


def as_counts(counts: dict[int, int]) -> CharacterCounts:
    codes = sorted(counts)
    return CharacterCounts(
        codes=np.array(codes, np.uint32), counts=np.array([counts[code] for code in codes], np.int64)
    )


def as_dict(counts: CharacterCounts) -> dict[int, int]:
    return dict(zip(counts.codes.tolist(), counts.counts.tolist(), strict=True))


@pytest.mark.parametrize("rule", RULES)
@given(texts, texts)
def test_counts_are_those_of_normalised_text_in_any_parts(rule, first, second):
    counter, totals = NormalCounter(rule), np.zeros(NUM_CODES, np.int64)
    counter.add(as_text(first))
    counter.add(as_text(second))
    whole = as_dict(counter.finish())
    assert whole == plain_counts(first + second, rule)
    for part in (second, first):
        counter = NormalCounter(rule)
        counter.add(as_text(part))
        counter.finish().add_to(totals)
    assert as_dict(CharacterCounts.of(totals)) == whole


@given(st.dictionaries(any_character.map(ord), st.integers(1, 1000), max_size=40), st.floats(0.98, 1.0), st.booleans())
def test_an_alphabet_is_what_is_required_and_the_fewest_characters_that_cover_the_share(counts, coverage, cased):
    alphabet = choose_alphabet(
        as_counts(counts), VocabConfig(character_coverage=coverage, cased=cased, required_chars="Éa")
    )
    required = {ord(c) for c in NormalRule(cased).normalise("".join(map(chr, range(0x20, 0x7F))) + "É")}
    chosen = {ord("▁"), *required} - {ord(" ")}
    assert alphabet.num_required == len(chosen)
    total, covered = sum(counts.values()), sum(counts.get(code, 0) for code in chosen)
    for code in sorted(counts, key=lambda code: (-counts[code], code)):
        if code not in chosen and code not in (0, 0x2585) and covered < coverage * total:
            covered += counts[code]
            chosen.add(code)
    assert set(alphabet.codes) == chosen
    assert alphabet.lost == {code: counts[code] for code in counts if code not in chosen}
    assert list(alphabet.lost.values()) == sorted(alphabet.lost.values(), reverse=True)
    assert alphabet.num_characters == total


@pytest.mark.parametrize(
    ("text", "share"), [("", 0), ("12 .", 0), ("abc 山", 0.25), ("a ที่", 0.5), ("かナ山རྐ", 1), ("한국어 ñ", 0)]
)
def test_letters_of_scripts_without_spaces_are_measured(text, share):
    assert measure_unspaced(as_counts(plain_counts([text], RULES[0]))) == pytest.approx(share)


@pytest.mark.parametrize("rule", RULES)
def test_no_replaced_string_begins_with_two_ascii_characters(rule):
    units, _ = rule.table
    for first in range(1, 128):
        node = find_base(units, 0) ^ first
        if units[node] & 0x800000FF == first:
            assert all(units[find_base(units, node) ^ byte] & 0x800000FF != byte for byte in range(1, 128))


# ---- shares by size ----

GREEK, THAI = ["Το νερό είναι κρύο σήμερα", "Η γλώσσα μας είναι παλιά"], ["ฉันชอบอ่านหนังสือ", "วันนี้อากาศดี"]


def write_languages(folder: Path, layout: int = 0) -> Path:
    """English, and two languages that have a hundredth of it, in one file or two."""
    rng, small = random.Random(7), {"el": GREEK, "th": THAI}
    rows = [("en", fixtures.make_lines(rng, 12)) for _ in range(60)]
    rows += [(code, f"{rng.choice(lines)} {number}") for code, lines in small.items() for number in range(12)]
    random.Random(layout).shuffle(rows)
    folder.mkdir()
    for number, part in enumerate([rows[::2], rows[1::2]] if layout else [rows]):
        lines = [json.dumps({"lang": code, "text": text}) + "\n" for code, text in part]
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return folder


def learn_languages(folder: Path, engine: Engine | None = None, shared: Path | None = None, **settings: Any) -> Any:
    text, config = TextConfig(language_field="lang"), VocabConfig(vocab_size=260, model_type="bpe", **settings)
    return learn_vocabulary(find_inputs([str(folder)]), text, config, engine or InlineEngine(), shared=shared)


def test_by_alpha_order_layout_workers_and_files_of_candidates_change_no_byte(tmp_path):
    first = learn_languages(write_languages(tmp_path / "a"), alpha=0.3, sample_bytes=8000)
    other = write_languages(tmp_path / "b", layout=1)
    for engine, shared in ((MultiprocessEngine(2), None), (InlineEngine(), tmp_path / "shared")):
        found = learn_languages(other, engine, shared, alpha=0.3, sample_bytes=8000)
        assert (found.trained, found.alphabet) == (first.trained, first.alphabet)


def test_by_alpha_a_small_language_has_its_characters_and_pieces(tmp_path):
    folder, text = write_languages(tmp_path / "in"), "\n".join(GREEK)
    settings = {"alpha": 0.3, "max_passes": 50.0}
    plain, shared = (learn_languages(folder, character_coverage=0.99, **given) for given in ({}, settings))
    ids = [Tokenizer(one.trained.model, "").encode(text.split("\n"))[0] for one in (plain, shared)]
    assert np.count_nonzero(ids[0] == 1) > np.count_nonzero(ids[1] == 1)
    assert len(ids[1]) < len(text.replace("\n", ""))
    assert (shared.alphabet.num_characters, shared.config.alpha) == (plain.alphabet.num_characters, 0.3)
    assert "alpha" in shared.to_dict()
    assert "alpha" not in plain.to_dict()


@pytest.mark.parametrize(
    ("alpha", "max_passes", "sample_bytes"), [(0.3, 4.0, 8000), (0.0, 2.5, 10**6), (1.0, 4.0, 9000)]
)
def test_the_sample_has_the_shares_of_a_build(alpha, max_passes, sample_bytes, tmp_path, monkeypatch):
    """By a search of its own for the common factor, on the sentences that the trainer gets."""
    got: list[bytes] = []
    nothing = TrainedModel(model=b"", num_sentences=0, num_bytes=0)
    monkeypatch.setattr(learning, "train_model", lambda sentences, config, **_: got.extend(sentences) or nothing)
    folder = write_languages(tmp_path / "in")
    learn_languages(folder, alpha=alpha, max_passes=max_passes, sample_bytes=sample_bytes)
    sizes, found = Counter[str](), Counter[str]()
    for line in (folder / "0.jsonl").read_text().splitlines():
        record = json.loads(line)
        for sentence in (one for text in record["text"].split("\n") for one in split_sentences(text)):
            sizes[record["lang"]] += len(sentence.encode())
    for sentence in got:
        is_greek, is_thai = (any(low <= c <= high for c in sentence.decode()) for low, high in ("ͰϿ", "ก๛"))
        found["el" if is_greek else "th" if is_thai else "en"] += len(sentence)
    names = sorted(sizes)
    most = min(sample_bytes, sum(sizes.values()))
    low, high = 0.0, 2.0 * most
    for _ in range(200):
        middle = (low + high) / 2
        wanted = [min(middle * sizes[name] ** alpha, max_passes * sizes[name]) for name in names]
        low, high = (middle, high) if sum(wanted) < most else (low, middle)
    assert [found[name] for name in names] == pytest.approx(wanted, abs=400)
    assert sum(found.values()) <= sample_bytes


@given(st.lists(st.binary(min_size=1, max_size=9), unique=True, max_size=20), st.floats(1, 9), st.integers(1, 300))
def test_a_sample_of_all_sentences_is_repeated_evenly_up_to_its_bytes(sentences, max_passes, max_bytes):
    sample = SentenceSample(max_bytes)
    sample.add({sentence: number for number, sentence in enumerate(sentences)})
    once, often = sample.sentences(), sample.sentences(max_passes)
    size = len(b"".join(once))
    if len(once) < len(sentences) or not once:
        assert often == once
        return
    counts = Counter(often)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert min(max_passes * size, max_bytes) - 9 <= len(b"".join(often)) <= min(max_passes * size, max_bytes)


def test_build_learns_its_vocabulary_by_its_alpha(tmp_path):
    folder, config = write_languages(tmp_path / "in"), VocabConfig(vocab_size=260, model_type="bpe")
    text = TextConfig(language_field="lang")
    settings = BuildConfig(text=text, alpha=0.3, max_passes=3.0)
    build_shards(find_inputs([str(folder)], text=text), tmp_path / "out", None, settings, InlineEngine(), vocab=config)
    alone = learn_languages(folder, alpha=0.3, max_passes=3.0)
    assert (tmp_path / "out/tokenizer/spiece.model").read_bytes() == alone.trained.model
    sources = [
        f'[[source]]\nname = "{code}"\npaths = "in"\nwhere = "lang == \'{code}\'"\n' for code in ("en", "el", "th")
    ]
    (tmp_path / "m.toml").write_text("".join(["alpha = 0.3\nmax_passes = 3\n", *sources]))
    mixed = learn_vocabulary(find_sources([str(tmp_path / "m.toml")]), TextConfig(), config, InlineEngine())
    assert mixed.trained == alone.trained
    assert (mixed.config.alpha, mixed.config.max_passes) == (0.3, 3.0)


@refused(
    (lambda: VocabConfig(alpha=1.5), ConfigError, "alpha is 1.5 & 0.0 to 1.0"),
    (lambda: VocabConfig(max_passes=2.0), ConfigError, "max_passes is 2 & alpha & give both"),
    (lambda: VocabConfig(alpha=0.3, max_passes=0.5), ConfigError, "max_passes is 0.5 & 1 to 1000"),
    (lambda: learn("-", alpha=0.3), ConfigError, "alpha is 0.3 & neither --language-field nor an INPUT:LANGUAGE"),
)
def test_what_can_not_be_shared_is_refused(call, kind, named):
    check_refused(call, kind, named)


# ---- what scripts lose ----


@given(st.dictionaries(any_character.map(ord), st.integers(1, 3000), max_size=40), st.sets(any_character.map(ord)))
def test_scripts_that_lose_much_are_those_of_a_recount(counts, others):
    lost = [code for code in sorted(counts, key=lambda code: (-counts[code], code)) if code in others]
    every, gone = Counter[str](), Counter[str]()
    for code, count in counts.items():
        if category(chr(code))[0] in "LM":
            every[script(chr(code))] += count
            gone[script(chr(code))] += count * (code in others)
    wanted = {
        name: gone[name] / every[name] for name in every if every[name] >= 1000 and gone[name] > every[name] / 1000
    }
    found = list(find_lost_scripts(as_counts(counts), lost))
    assert {name: share for name, share, _ in found} == pytest.approx(wanted, abs=1e-6)
    assert [share for _, share, _ in found] == sorted((share for _, share, _ in found), reverse=True)
    for name, _, first in found:
        of_script = [chr(code) for code in lost if script(chr(code)) == name and category(chr(code))[0] in "LM"]
        assert list(first) == of_script[:5]


def test_the_scripts_that_lose_much_are_told_with_what_helps(tmp_path):
    (tmp_path / "in.txt").write_text("Plain words here. " * 60_000 + "αβγδ " * 250 + "и" * 999)
    report = learn(tmp_path, character_coverage=0.998, vocab_size=110)
    assert report.to_dict()["characters"]["lost_scripts"] == [("GREEK", 1.0, "αβγδ")]
    told = " ".join(" ".join(report.describe_choices()).split())
    assert "Greek loses 100.00 %: α, β, γ, δ" in told
    assert "--character-coverage 1.0 keeps all, --required-chars those that you name, --alpha more of small" in told
