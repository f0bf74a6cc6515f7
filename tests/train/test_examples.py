"""The examples in docs/examples compute what they say, and learn, on tiny models and data."""

from __future__ import annotations

import collections
import copy
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from build_fixtures import run_build, to_txt
from toy_language import train_model

from albert_data.tokenizer.model import Tokenizer
from albert_data.train.config import AlbertConfig
from albert_data.train.model import Albert

pytest.importorskip("safetensors", reason="the train extra is not installed")
pytest.importorskip("transformers", reason="the huggingface extra is not installed")

import answer
import classify
import conditional_norm
import electra
import fill_mask
import flooding
import linear_attention
import multiple_choice
import pet
import text_autoencoder
import theseus
import toy_tasks
import transformers

from albert_data.interop import ShardDataset, huggingface

EXAMPLES = (
    *(answer, classify, conditional_norm, electra, fill_mask, flooding, linear_attention, multiple_choice, pet),
    *(text_autoencoder, theseus),
)
REMARKS, HELD_OUT = toy_tasks.make_remarks(200), toy_tasks.make_remarks(100, seed=1)  # of the same words
NAMES = ["blame", "praise"]


def make_text() -> list[str]:
    """Sentences of all words of the toy tasks."""
    return [
        sentence
        for test in (False, True)
        for _, _, text in toy_tasks.make_questions(600, test=test)
        for sentence in (text, "It was good. He is bad.", toy_tasks.make_remarks(1, test=test)[0][1])
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with `model`, exported with random weights, and `shards` of its tokenizer."""
    folder = tmp_path_factory.mktemp("examples")
    text = make_text()
    tokenizer = Tokenizer(train_model(sentence_iterator=iter(text), vocab_size=400), "toy")
    documents = ["\n".join(text[begin : begin + 12]) for begin in range(0, len(text), 12)]
    (folder / "corpus.txt").write_bytes(to_txt(documents))
    run_build(folder / "corpus.txt", folder / "shards", tokenizer, validation_fraction=0.1)
    sizes = {"embedding_size": 32, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "ffn_size": 128}
    torch.manual_seed(0)
    model = Albert(AlbertConfig(vocab_size=tokenizer.vocab_size, max_positions=64, **sizes))
    huggingface.write_folder(model, tokenizer, folder / "model")
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder / "model")


@pytest.fixture
def masked(folder):
    """The model with its MLM head."""
    return transformers.AlbertForMaskedLM.from_pretrained(folder / "model").eval()


@pytest.fixture
def classifier(folder):
    torch.manual_seed(0)
    return transformers.AlbertForSequenceClassification.from_pretrained(folder / "model", num_labels=2)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run an example's command line and return what it prints."""

    def call(module, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["example.py", *map(str, arguments)])
        module.main()
        return capsys.readouterr().out

    return call


def last_number(shown: str, after: str) -> float:
    """The number that follows the last occurrence of some words."""
    return float(shown.rpartition(after)[2].split()[0].strip("%,:"))


def share_right(guesses: list[str], rows) -> float:
    return sum(guess == row[0] for guess, row in zip(guesses, rows, strict=True)) / len(rows)


def write_tsv(path: Path, rows) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


@torch.no_grad()
def disturb(module: torch.nn.Module, deviation: float) -> None:
    for weight in module.parameters():
        weight.add_(torch.randn_like(weight) * deviation)


def praises(text: str) -> bool:
    return bool({word.strip(".,") for word in text.split()} & set(toy_tasks.PRAISE.split()))


# ---- the tasks ----


def test_the_words_of_a_test_are_not_in_its_training():
    lists = (toy_tasks.PRAISE, toy_tasks.BLAME, toy_tasks.NAMES, toy_tasks.THINGS, toy_tasks.PLACES)
    vocabulary = set(" ".join(lists).split())
    for make in (toy_tasks.make_remarks, toy_tasks.make_pairs, toy_tasks.make_questions):
        seen, unseen = (
            {word.strip(".,") for row in make(500, test=test) for word in " ".join(row[1:]).split()} & vocabulary
            for test in (False, True)
        )
        assert len(seen) > len(unseen) > 0
        assert not seen & unseen


def test_labels_and_answers_are_those_of_the_texts():
    for label, *texts in toy_tasks.make_pairs(300):
        first, second = map(praises, texts)
        assert label == ("equal" if first == second else "first" if first else "second")
    for test in (False, True):
        assert all(text.count(right) == 1 for right, _, text in toy_tasks.make_questions(300, test=test))


def test_a_file_of_labelled_lines_is_read(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("\ufefffine\tA text.\n\nbad\tAnother.\n", encoding="utf-8")
    assert toy_tasks.read_tsv(path, 2) == [("fine", "A text."), ("bad", "Another.")]


# ---- command lines ----


@pytest.mark.parametrize("module", EXAMPLES)
def test_a_model_that_is_not_there_is_refused_without_a_network(module, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["example.py", "nowhere", "shards"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(module.__file__, run_name="__main__")  # as `python EXAMPLE`
    assert "there is no folder 'nowhere'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        (classify, "model --train train.tsv --test test.tsv", "test.tsv: the label 'bad' is not in train.tsv"),
        (classify, "model --pairs --train train.tsv --test test.tsv", "line 1: has 2 fields, but 3 are needed"),
        (classify, "model --train model/spiece.model --test test.tsv", "model: can't be read as UTF-8 text"),
        (classify, "model --train empty.tsv --test test.tsv", "empty.tsv: has no lines"),
        (classify, "model --train missing.tsv --test test.tsv", "No such file"),
        (classify, "model --train train.tsv", "give both --train and --test"),
        (answer, "model --train train.tsv", "give both --train and --test"),
        (classify, "model --save model", "model exists; give --save a new folder"),
        (classify, "model --predict test.tsv", "model: is no classifier that --save wrote"),
        (fill_mask, "model [MASK][MASK]", "the text needs one [MASK]"),
        (text_autoencoder, "model shards --tokens 100", "no validation row begins with 100 tokens"),
        (theseus, "groups shards", "groups: has 2 groups of layers"),
        (theseus, "odd shards", "odd: has 1 layers, an odd number"),
    ],
)
def test_a_command_that_can_not_be_done_says_why(folder, monkeypatch, run, capsys, module, arguments, words):
    monkeypatch.chdir(folder)
    write_tsv(Path("train.tsv"), [("good", "A text.")])
    write_tsv(Path("test.tsv"), [("bad", "A text.")])
    write_tsv(Path("empty.tsv"), [()])
    if module == theseus:
        config = transformers.AlbertConfig.from_pretrained("model", num_hidden_layers=1)
        transformers.AlbertForMaskedLM(config).save_pretrained("odd")
        config.num_hidden_layers = config.num_hidden_groups = 2
        transformers.AlbertForMaskedLM(config).save_pretrained("groups")
    with pytest.raises(SystemExit) as caught:
        run(module, *arguments.split())
    assert words in f"{caught.value} {capsys.readouterr().err}"  # of the example, or of its parser


def test_the_fill_mask_example_shows_so_many_guesses(folder, run):
    shown = run(fill_mask, folder / "model", "It was [MASK].", "--top", "3")
    assert re.fullmatch(r"( *\d+\.\d%  .*\n){3}", shown), shown


def test_the_multiple_choice_example_learns(folder, monkeypatch, run):
    things = toy_tasks.THINGS.split()  # the toy tokenizer knows no Chinese
    questions = [("What was taken?", things[4 * n :][:4], n % 4) for n in range(8)]
    monkeypatch.setattr(multiple_choice, "QUESTIONS", questions)
    shown = run(multiple_choice, folder / "model", "--lr", "3e-3")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", shown)]
    assert losses[0] == pytest.approx(1.386, abs=0.3)  # ln 4
    assert losses[-1] < 0.5
    assert "right: 8 of 8" in shown
    assert len(re.findall(r"^ *\d+\.\d%  ", shown, re.MULTILINE)) == 4


# ---- classification ----


def test_a_classifier_learns_labels_and_nothing_from_shuffled_ones(tokenizer, classifier):
    shuffled = [(NAMES[number % 7 % 2], row[1]) for number, row in enumerate(REMARKS)]
    shares = []
    for rows in (shuffled, REMARKS):
        model = copy.deepcopy(classifier)
        classify.train(model, tokenizer, rows, NAMES, steps=120, lr=3e-3)
        shares.append(share_right(classify.predict(model, tokenizer, HELD_OUT, NAMES), HELD_OUT))
    assert shares[0] < 0.8
    assert shares[1] > 0.95


def test_a_classifier_of_files_reads_both_texts_of_a_pair_and_is_saved(folder, tmp_path, run):
    first = [text for _, text in toy_tasks.make_remarks(200, seed=2)][::-1]
    saved, files = tmp_path / "classifier", []
    for name, rows in (("train", REMARKS), ("test", HELD_OUT)):
        pairs = [(label, other, text) for (label, text), other in zip(rows, first, strict=False)]
        files += [f"--{name}", write_tsv(tmp_path / f"{name}.tsv", pairs)]
    options = ["--pairs", *files, "--scratch", "--steps", "150", "--lr", "3e-3", "--save", saved]
    right = last_number(run(classify, folder / "model", *options), "right: ")
    assert right > 90
    texts = write_tsv(tmp_path / "texts.tsv", [row[1:] for row in pairs])
    found = [tuple(line.split("\t")) for line in run(classify, saved, "--predict", texts).splitlines()]
    assert [row[1:] for row in found] == [row[1:] for row in pairs]
    assert round(100 * share_right([row[0] for row in found], pairs), 1) == right
    assert last_number(run(classify, saved, "--pairs", *files, "--steps", "1"), "right: ") > 90, "it begins with it"
    pipeline = transformers.pipeline("text-classification", str(saved))
    assert pipeline({"text": pairs[0][1], "text_pair": pairs[0][2]})["label"] == found[0][0]


# ---- answers ----


def test_the_tokens_of_an_answer_are_those_of_its_text(tokenizer):
    rows = toy_tasks.make_questions(60)
    encoded = answer.encode(tokenizer, rows)
    for row, first, last, ids in zip(rows, *answer.locate(encoded, rows), encoded["input_ids"], strict=True):
        assert tokenizer.decode(ids[first : last + 1]).strip() == row[0]


def test_an_answer_that_is_cut_off_is_not_trained(tokenizer, monkeypatch):
    monkeypatch.setattr(answer, "MAX_LEN", 16)
    rows = [("Anna", "Who was it?", "It was good. " * 9 + "Anna came.")]
    assert answer.locate(answer.encode(tokenizer, rows), rows) == (torch.tensor([-100]), torch.tensor([-100]))
    with pytest.raises(SystemExit, match="all answers lie behind the first 16 tokens"):
        answer.train(torch.nn.Linear(1, 1), tokenizer, rows, steps=10, lr=1e-3)
    with pytest.raises(SystemExit, match="'Tom' is not in its text"):
        answer.locate(answer.encode(tokenizer, rows), [("Tom", *rows[0][1:])])


def test_questions_are_answered_from_the_text_and_learned(folder, tokenizer):
    torch.manual_seed(0)
    model = transformers.AlbertForQuestionAnswering.from_pretrained(folder / "model")
    rows, held_out = toy_tasks.make_questions(600), toy_tasks.make_questions(60, seed=1)
    guesses = answer.predict(model, tokenizer, held_out)
    assert all(guess in row[2] for guess, row in zip(guesses, held_out, strict=True))
    assert share_right(guesses, held_out) < 0.2
    answer.train(model, tokenizer, rows, steps=120, lr=5e-3)
    assert share_right(answer.predict(model, tokenizer, held_out), held_out) > 0.6


# ---- flooding ----


def test_flooding_changes_the_sign_of_the_gradient_below_the_level():
    loss = torch.tensor([0.5, 0.3, 0.1], requires_grad=True)
    flooded = flooding.flood(loss, 0.3)
    flooded.sum().backward()
    assert flooded.tolist() == pytest.approx([0.5, 0.3, 0.5])
    assert loss.grad[[0, 2]].tolist() == [1.0, -1.0]


def test_one_label_in_five_is_wrong_alike_for_both():
    spoiled = flooding.spoil(REMARKS, every=5)
    wrong = [row[0] for row, other in zip(REMARKS, spoiled, strict=True) if row[0] != other[0]]
    assert (wrong.count("praise"), wrong.count("blame")) == (20, 20)
    assert [row[1] for row in spoiled] == [row[1] for row in REMARKS]


def test_with_flooding_the_training_loss_stays_near_the_level(tokenizer, classifier, capsys):
    losses = []
    for level in (0.0, 0.4):
        torch.manual_seed(4)  # with others the loss is near 0.1, and rounding decides
        model, options = copy.deepcopy(classifier), {"level": level, "epochs": 20, "lr": 3e-3}
        assert len(flooding.train(model, tokenizer, REMARKS[:64], HELD_OUT[:10], **options)) == 20
        losses.append(last_number(capsys.readouterr().out, ": loss "))
    assert losses[0] < 0.1
    assert 0.2 < losses[1] < 0.65


# ---- linear attention ----


def test_linear_attention_is_its_quadratic_form():
    q_BATD, k_BATD, v_BATD = torch.randn(3, 2, 3, 10, 4, dtype=torch.float64)
    valid_BT = torch.arange(10) < torch.tensor([[10], [6]])
    weights_BATT = (F.elu(q_BATD) + 1) @ (F.elu(k_BATD) + 1).transpose(2, 3) * valid_BT[:, None, None, :]
    expected = weights_BATT / weights_BATT.sum(-1, keepdim=True) @ v_BATD
    torch.testing.assert_close(linear_attention.attend_linearly(q_BATD, k_BATD, v_BATD, valid_BT), expected)


def test_the_work_of_linear_attention_grows_with_the_length_and_not_with_its_square():
    from torch.utils.flop_counter import FlopCounterMode

    work = []
    for num_tokens in (64, 128):
        with FlopCounterMode(display=False) as counter:
            linear_attention.attend_linearly(*torch.randn(3, 1, 2, num_tokens, 8))
        work.append(counter.get_total_flops())
    assert work[1] == 2 * work[0] > 0


def test_padding_does_not_change_a_row_of_a_model_with_linear_attention(masked, tokenizer):
    masked.set_attn_implementation("linear")
    texts = ["It was good.", "The dinner was splendid, as always. He is bad."]
    together = masked(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    alone = masked(**tokenizer(texts[:1], return_tensors="pt")).logits
    torch.testing.assert_close(together[:1, : alone.shape[1]], alone)


@pytest.mark.slow
def test_a_model_learns_with_linear_attention(folder, monkeypatch, run):
    timed = linear_attention.time_attentions
    monkeypatch.setattr(linear_attention, "time_attentions", lambda num_tokens: timed(num_tokens // 64, repeats=1))
    shown = run(linear_attention, folder / "model", folder / "shards", "--steps", "40", "--lr", "5e-3")
    assert last_number(shown, "after 40 updates: MLM loss ") < last_number(shown, "untrained: MLM loss ") - 1
    assert len(re.findall(r"^\d+( \d+\.\d){3}$", shown, re.MULTILINE)) == 5, "all three attentions are timed"


# ---- the text autoencoder ----


def test_a_position_of_the_text_autoencoder_depends_on_all_tokens_but_its_own(masked, tokenizer):
    disturb(masked, 0.2)  # with the weights of a new model, attention is nearly uniform
    model = text_autoencoder.TextAutoencoder(masked, tokenizer.mask_token_id).double().eval()
    ids_BT = torch.randint(5, 200, (1, 8))
    zeros_BT, valid_BT = torch.zeros_like(ids_BT), torch.ones_like(ids_BT)
    logits_BTV = model(ids_BT, zeros_BT, valid_BT)
    for place in range(8):
        changed_BT = ids_BT.clone()
        changed_BT[0, place] = 201
        is_equal_T = (model(changed_BT, zeros_BT, valid_BT) - logits_BTV).abs().amax(-1)[0] < 1e-9
        assert is_equal_T.tolist() == [other == place for other in range(8)]


def test_padding_does_not_change_a_row_of_the_text_autoencoder(masked, tokenizer):
    model = text_autoencoder.TextAutoencoder(masked, tokenizer.mask_token_id)
    ids_BT = torch.randint(5, 200, (1, 8))
    short = model(ids_BT[:, :5])  # without padding, and all of segment A
    valid_BT = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0]])
    torch.testing.assert_close(model(ids_BT, torch.zeros_like(ids_BT), valid_BT)[:, :5], short)


def test_guesses_by_masks_are_those_of_one_pass_for_each_token(masked):
    ids_T, mask_id = torch.tensor([2, 30, 40, 50, 3]), 4
    expected = []
    for place in (1, 2, 3):
        masked_T = ids_T.clone()
        masked_T[place] = mask_id
        expected.append(masked(input_ids=masked_T[None]).logits[0, place])
    torch.testing.assert_close(text_autoencoder.guess_by_masks(masked, ids_T, mask_id), torch.stack(expected))


def test_the_text_autoencoder_learns_to_prefer_the_original(folder, run):
    options = ["--steps", "80", "--lr", "5e-3", "--tokens", "12"]
    assert last_number(run(text_autoencoder, folder / "model", folder / "shards", *options), "T-TA: right ") > 70


# ---- ELECTRA ----


def test_only_masks_are_replaced_and_a_drawn_original_counts_as_such(folder, tokenizer):
    rows = ShardDataset(folder / "shards", remask=False)
    batch = rows.collate([rows[number] for number in range(8)])
    labels_BT = batch["labels"]
    is_masked_BT = labels_BT != -100
    certain_BTV = F.one_hot(labels_BT.clamp(min=0), tokenizer.vocab_size) * 1e4
    ids_BT, is_replaced_BT = electra.Electra.replace(batch, certain_BTV.float())
    assert not is_replaced_BT.any()
    assert torch.equal(ids_BT, text_autoencoder.restore(batch))
    ids_BT, is_replaced_BT = electra.Electra.replace(batch, certain_BTV.roll(1, -1).float())
    assert torch.equal(is_replaced_BT, is_masked_BT)
    assert torch.equal(ids_BT[~is_masked_BT], batch["input_ids"][~is_masked_BT])


@pytest.mark.slow
def test_electra_learns_to_detect_replaced_tokens(folder, masked):
    rows = ShardDataset(folder / "shards", masked)
    batch = rows.collate([rows[number] for number in range(64)])
    learner, shares = electra.Electra(masked.config), []
    assert learner.generator.albert.embeddings is learner.encoder.embeddings
    assert learner.generator.get_output_embeddings().weight is learner.encoder.embeddings.word_embeddings.weight
    for steps in (1, 150):
        torch.manual_seed(0)
        learner = electra.Electra(masked.config)
        electra.train(learner, rows, steps=steps, lr=5e-3, device="cpu")
        with torch.no_grad():
            ids_BT, is_replaced_BT = learner.replace(batch, learner.generator(**batch).logits)
            inputs = {name: batch[name] for name in ("token_type_ids", "attention_mask")}
            scores_BT = learner.detect(learner.encoder(input_ids=ids_BT, **inputs).last_hidden_state)[..., 0]
        is_kept_BT = batch["attention_mask"].bool() & ~is_replaced_BT
        shares.append((scores_BT[is_replaced_BT][:, None] > scores_BT[is_kept_BT]).float().mean().item())
    assert shares[0] == pytest.approx(0.5, abs=0.15)  # of a replaced and a kept token, which is the suspect
    assert shares[1] > 0.62


def test_the_probe_reads_words_that_it_has_seen(folder, tokenizer):
    encoder = transformers.AlbertModel.from_pretrained(folder / "model").eval()
    assert electra.probe(encoder, tokenizer, REMARKS, HELD_OUT) > 0.8


# ---- cloze questions ----


def test_the_scores_of_labels_are_the_logits_of_their_words_at_the_mask(masked, tokenizer, monkeypatch):
    texts = ["He is bad.", "The dinner was good, as always."]
    scores_BK = pet.score_words(masked, tokenizer, texts)
    for text, scores_K in zip(texts, scores_BK, strict=True):
        ids = tokenizer(text + " It was [MASK].", return_tensors="pt")
        place = ids["input_ids"][0].tolist().index(tokenizer.mask_token_id)
        logits_V = masked(**ids).logits[0, place]
        expected = [logits_V[tokenizer.convert_tokens_to_ids(f"\u2581{word}")] for word in ("bad", "good")]
        torch.testing.assert_close(scores_K, torch.stack(expected))
    monkeypatch.setitem(pet.WORDS, "praise", "goodbadgood")
    with pytest.raises(SystemExit, match="'goodbadgood' is not one piece"):
        pet.find_ids(tokenizer)


def test_a_cloze_question_is_learned(masked, tokenizer):
    options = {"lr": 5e-3, "rows": REMARKS[:100], "held_out": HELD_OUT[:60]}
    assert pet.learn(masked, tokenizer, pet.score_words, epochs=0, **options) < 0.8
    assert pet.learn(masked, tokenizer, pet.score_words, epochs=25, **options) > 0.9


# ---- conditional LayerNorm ----


def test_a_new_condition_changes_nothing(classifier, tokenizer):
    inputs = tokenizer(["It was good.", "He is bad."], return_tensors="pt", padding=True)
    expected = classifier.eval()(**inputs).logits
    tasks_B = conditional_norm.add_condition(classifier)
    tasks_B.append(torch.tensor([0, 1]))
    torch.testing.assert_close(classifier(**inputs).logits, expected)
    norms = [module for module in classifier.modules() if isinstance(module, conditional_norm.ConditionalLayerNorm)]
    assert len(norms) == 3  # of the embeddings, and of the two parts of the shared layer


def test_the_labels_of_both_tasks_are_those_of_the_pair_and_independent():
    def describe(text):
        return praises(text), any(text.startswith(pattern.split("{}")[0]) for pattern in toy_tasks.ON_PEOPLE)

    first, second, tasks, labels = conditional_norm.make_rows(640)
    seen = collections.Counter()
    for one, other, task, label in zip(map(describe, first), map(describe, second), tasks, labels, strict=True):
        assert label == (one[task] == other[task])
        seen[one, other, int(task)] += 1
    assert set(seen.values()) == {20}
    assert len(seen) == 32


def test_only_with_a_condition_a_model_learns_labels_that_contradict_each_other(folder, tokenizer, monkeypatch):
    def make_rows(count, **_):
        tasks = torch.arange(count) % 2
        return ["It was good."] * count, ["He is bad."] * count, tasks, tasks

    monkeypatch.setattr(conditional_norm, "make_rows", make_rows)
    shares = []
    for conditional in (False, True):
        torch.manual_seed(0)
        model = transformers.AlbertForSequenceClassification.from_pretrained(folder / "model")
        tasks_B = conditional_norm.add_condition(model) if conditional else None
        shares.append(conditional_norm.learn(model, tokenizer, tasks_B, steps=40, lr=3e-3))
    assert sorted(shares[0]) == [0.0, 1.0]  # the same label for all
    assert shares[1] == [1.0, 1.0]


# ---- Theseus ----


def test_the_rate_decides_which_layers_are_run(masked, tokenizer):
    inputs = tokenizer("It was good. He is bad.", return_tensors="pt")
    whole = masked(**inputs).logits
    half = theseus.begin_half(masked)
    disturb(half.albert.encoder.successor, 0.1)
    half.train().albert.encoder.rate = 0.0
    torch.testing.assert_close(half(**inputs).logits, whole)  # the model has no dropout
    short = half.eval()(**inputs).logits
    assert (short - whole).abs().max() > 1e-3
    torch.testing.assert_close(theseus.finish_half(half)(**inputs).logits, short)


def test_a_half_is_trained_at_a_rising_rate_while_the_whole_stays(folder, masked, monkeypatch):
    rows, validation = (ShardDataset(folder / "shards", masked, split=split) for split in ("train", "validation"))
    linear_attention.train(masked, rows, steps=60, lr=5e-3)  # with softmax
    half = theseus.begin_half(masked)
    encoder, rates, clip = half.albert.encoder, [], torch.nn.utils.clip_grad_norm_
    disturb(encoder.successor, 1.0)
    before = theseus.measure_loss(half, validation)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *given: rates.append(encoder.rate) or clip(*given))
    steps = len(rows) // 16 + 10  # more than an epoch
    theseus.train(half, rows, steps=steps, lr=5e-3, first_rate=0.8)
    assert rates[0] == pytest.approx(0.8, abs=0.1)
    assert rates == sorted(rates)
    assert rates[-steps // 2 :] == [1.0] * (steps - steps // 2)
    assert theseus.measure_loss(half, validation) < before - 0.3
    kept = encoder.predecessor.state_dict()
    assert all(torch.equal(kept[name], value) for name, value in masked.albert.encoder.state_dict().items())


def test_a_half_model_is_written(folder, tmp_path, run):
    shown = run(theseus, folder / "model", folder / "shards", "-o", tmp_path / "half", "--steps", "2")
    half = transformers.AlbertForMaskedLM.from_pretrained(tmp_path / "half")
    validation = ShardDataset(folder / "shards", half, split="validation")
    assert half.config.num_hidden_layers == 1
    assert theseus.measure_loss(half, validation) == pytest.approx(last_number(shown, "by replacing: "), abs=0.001)
