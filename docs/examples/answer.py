"""Find the answer to a question in a text (span extraction): fine-tune your own model, without a network.

albert-data export RUN -o MODEL
python docs/examples/answer.py MODEL --train train.tsv --test test.tsv

A line is `answer<TAB>question<TAB>text`, and the answer stands in the text. Without files the questions are made up
(toy_tasks.py): who took what to which place?

Source: Devlin et al. 2018, BERT, arXiv 1810.04805, section 4.2. A row is [CLS] question [SEP] text [SEP]. Each token
gets two scores, to be the first and to be the last of the answer; the answer is the span of the text with the highest
sum.
Measured (docs/reference/results.md): 98 % of the answers are exactly right, from random weights 58 %.
`--scratch` begins with random weights: the difference is what pretraining gave. For a model of size base use a rate of
3e-5.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from torch import Tensor
from toy_tasks import Labelled, load, make_questions, model_folder, read_tsv
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
    logging,
)

MAX_LEN, LONGEST_ANSWER = 256, 16  # tokens


def encode(tokenizer, rows: Labelled):
    """Encode questions with their texts. What does not fit is cut off at the end of the text."""
    questions, texts = [row[1] for row in rows], [row[2] for row in rows]
    return tokenizer(
        questions,
        texts,
        padding=True,
        truncation="only_second",
        max_length=min(MAX_LEN, tokenizer.model_max_length),
        return_offsets_mapping=True,
        return_tensors="pt",
    )


def locate(encoded, rows: Labelled) -> tuple[Tensor, Tensor]:
    """The first and the last token of each answer; -100 if it is cut off."""
    firsts, lasts = [], []
    for number, (answer, _, text) in enumerate(rows):
        begin = text.find(answer)
        if begin < 0:
            raise SystemExit(f"the answer {answer!r} is not in its text: {text[:60]!r}")
        first = encoded.char_to_token(number, begin, sequence_index=1)
        last = encoded.char_to_token(number, begin + len(answer) - 1, sequence_index=1)
        found = first is not None and last is not None
        firsts.append(first if found else -100)
        lasts.append(last if found else -100)
    return torch.tensor(firsts), torch.tensor(lasts)


def train(model, tokenizer, rows: Labelled, *, steps: int, lr: float, batch_rows: int = 16) -> None:
    """Train all weights; the rate rises for a tenth of the steps and then falls to 0."""
    rng = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    places = locate(encode(tokenizer, rows), rows)[0].tolist()
    rows = [row for row, place in zip(rows, places, strict=True) if place >= 0]  # the model would take -100 for [CLS]
    if not rows:
        raise SystemExit(f"all answers lie behind the first {MAX_LEN} tokens")
    model.train()
    for step in range(1, steps + 1):
        chosen = rng.sample(rows, min(batch_rows, len(rows)))
        encoded = encode(tokenizer, chosen)
        first, last = (places.to(model.device) for places in locate(encoded, chosen))
        encoded.pop("offset_mapping")
        loss = model(**encoded.to(model.device), start_positions=first, end_positions=last).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step == 1 or step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


@torch.no_grad()
def predict(model, tokenizer, rows: Labelled) -> list[str]:
    """The most probable span of each text, as it stands there."""
    model.eval()
    answers: list[str] = []
    for begin in range(0, len(rows), 64):
        part = rows[begin : begin + 64]
        encoded = encode(tokenizer, part)
        offsets = encoded.pop("offset_mapping")
        in_text_BT = torch.tensor([[kind == 1 for kind in encoded.sequence_ids(row)] for row in range(len(part))])
        output = model(**encoded.to(model.device))
        first_BT, last_BT = (
            scores.cpu().masked_fill(~in_text_BT, float("-inf")) for scores in (output.start_logits, output.end_logits)
        )
        sums_BTT = first_BT[:, :, None] + last_BT[:, None, :]
        possible_TT = torch.ones_like(sums_BTT[0], dtype=torch.bool).triu().tril(LONGEST_ANSWER - 1)
        best = sums_BTT.masked_fill(~possible_TT, float("-inf")).flatten(1).argmax(-1)
        for number, place in enumerate(best.tolist()):
            first, last = divmod(place, sums_BTT.shape[-1])
            answers.append(part[number][2][offsets[number, first, 0] : offsets[number, last, 1]].strip())
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune a model to find answers in a text.")
    parser.add_argument("model", type=model_folder, help="folder that `albert-data export` wrote")
    parser.add_argument("--train", type=Path, help="file of answers, questions and texts (default: made-up ones)")
    parser.add_argument("--test", type=Path, help="file of others")
    parser.add_argument("--steps", type=int, default=300, help="updates of the weights")
    parser.add_argument("--lr", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--scratch", action="store_true", help="begin with random weights")
    parser.add_argument("--seed", type=int, default=0, help="of new weights and of dropout")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # no report of the weights that a head adds or leaves out
    if (arguments.train is None) != (arguments.test is None):
        parser.error("give both --train and --test, or neither")
    if arguments.train:
        rows, held_out = read_tsv(arguments.train, 3), read_tsv(arguments.test, 3)
    else:
        rows, held_out = make_questions(2000), make_questions(400, test=True)

    torch.manual_seed(arguments.seed)
    tokenizer = load(AutoTokenizer, arguments.model)
    model = (
        AutoModelForQuestionAnswering.from_config(load(AutoConfig, arguments.model))
        if arguments.scratch
        else load(AutoModelForQuestionAnswering, arguments.model)
    ).to("cuda" if torch.cuda.is_available() else "cpu")
    train(model, tokenizer, rows, steps=arguments.steps, lr=arguments.lr)
    answers = predict(model, tokenizer, held_out)
    for answer, (right, question, _) in list(zip(answers, held_out, strict=True))[:6]:
        print(f"{question} {answer} ({right})")
    num_right = sum(answer == row[0] for answer, row in zip(answers, held_out, strict=True))
    print(f"exactly right: {num_right / len(held_out):.1%} of {len(held_out)}")


if __name__ == "__main__":
    main()
