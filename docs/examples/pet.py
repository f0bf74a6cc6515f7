"""Pattern-exploiting training: classify texts from a few examples by the word that the model puts in place of a mask.

albert-data export RUN -o MODEL
python docs/examples/pet.py MODEL

Source: Schick and Schuetze 2021, "Exploiting Cloze Questions for Few Shot Text Classification and Natural Language
Inference", arXiv 2001.07676, section 3. A pattern makes a text a cloze question with one mask, and each label has a
word, its verbaliser. The score of a label is the MLM head's logit of its word, so no part of the model is new: it
guesses before any training, and learns from few examples. The paper also combines several patterns, and labels more
text with them; this example has one pattern, and no text without labels.

The example learns from 16 remarks of each label (toy_tasks.py), beside a new classifier on [CLS], several times with
other remarks and other random numbers. The test has other words.
Measured (docs/reference/results.md): after 22,000 updates of pretraining 68.2 % are right by the cloze question, and
62.8 % by a new classifier. After 4,699 both are at chance.
"""

from __future__ import annotations

import argparse
import statistics

import torch
import torch.nn.functional as F
from torch import Tensor
from toy_tasks import load, make_remarks, model_folder
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer, logging

PATTERN = "{} It was [MASK]."
WORDS = {"blame": "bad", "praise": "good"}
NAMES = list(WORDS)


def find_ids(tokenizer) -> Tensor:
    """The ids of the labels' words in the place of the mask. Each word has to be one piece there."""
    before = PATTERN.format("").split("[MASK]")[0]
    ids = []
    for word in WORDS.values():
        *others, last = tokenizer.encode(before + word, add_special_tokens=False)
        if others != tokenizer.encode(before, add_special_tokens=False) or last == tokenizer.unk_token_id:
            raise SystemExit(f"the word {word!r} is not one piece of the vocabulary; choose another in WORDS")
        ids.append(last)
    return torch.tensor(ids)


def score_words(model, tokenizer, texts: list[str]) -> Tensor:
    """The logits of the labels' words at the mask of each text, B x labels."""
    inputs = tokenizer([PATTERN.format(text) for text in texts], padding=True, return_tensors="pt")
    logits_BTV = model(**inputs.to(model.device)).logits
    return logits_BTV[inputs["input_ids"] == tokenizer.mask_token_id][:, find_ids(tokenizer)]


def score_classes(model, tokenizer, texts: list[str]) -> Tensor:
    """The logits of a classifier on [CLS], B x labels."""
    return model(**tokenizer(texts, padding=True, return_tensors="pt").to(model.device)).logits


def learn(model, tokenizer, score, rows, held_out, *, epochs: int, lr: float) -> float:
    """Train all weights on the rows, whole each time, and return the share of right labels on the others."""
    labels = torch.tensor([NAMES.index(label) for label, _ in rows], device=model.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    model.train()
    for _ in range(epochs):
        F.cross_entropy(score(model, tokenizer, [text for _, text in rows]), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        chosen = score(model, tokenizer, [text for _, text in held_out]).argmax(-1)
    return statistics.mean(NAMES[number] == label for number, (label, _) in zip(chosen, held_out, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn a classification from a few examples, by a cloze question.")
    parser.add_argument("model", type=model_folder, help="folder that `albert-data export` wrote")
    parser.add_argument("--examples", type=int, default=16, help="labelled texts of each label")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=2e-4, help="learning rate (2e-5 for a model of size base)")
    parser.add_argument("--draws", type=int, default=5, help="repetitions with other examples")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # no report of the weights that a head adds or leaves out
    tokenizer = load(AutoTokenizer, arguments.model)
    held_out = make_remarks(400, test=True)
    ways = {
        "cloze, untrained": (AutoModelForMaskedLM, score_words, 0),
        "cloze": (AutoModelForMaskedLM, score_words, arguments.epochs),
        "classifier": (AutoModelForSequenceClassification, score_classes, arguments.epochs),
    }
    for name, (kind, score, epochs) in ways.items():
        shares = []
        for draw in range(arguments.draws if epochs else 1):
            torch.manual_seed(draw)
            model = load(kind, arguments.model).to("cuda" if torch.cuda.is_available() else "cpu")
            rows = make_remarks(len(NAMES) * arguments.examples, seed=draw)
            shares.append(learn(model, tokenizer, score, rows, held_out, epochs=epochs, lr=arguments.lr))
        print(f"{name}: right {statistics.mean(shares):.1%} ({min(shares):.1%} to {max(shares):.1%})")


if __name__ == "__main__":
    main()
