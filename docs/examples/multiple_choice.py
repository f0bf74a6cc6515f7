"""Choose one of four Chinese answers: fine-tune your own model on a few questions, without a network.

albert-data export RUN -o MODEL
python docs/examples/multiple_choice.py MODEL

Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 3.3; as the ALBERT
paper does for RACE (arXiv 1909.11942). Each choice is encoded as a pair, `[CLS] question [SEP] choice [SEP]`, and gets
one score; the softmax is over the four. The questions are made up: enough to show the method, too few to measure a
model. For a model of size base use a rate of 2e-5.
Measured (docs/reference/results.md): all 8 questions are learnt; the ninth is not answered.
"""

from __future__ import annotations

import argparse

import torch
from toy_tasks import load, model_folder
from transformers import AlbertForMultipleChoice, AlbertTokenizer

QUESTIONS = [
    ("下雨了，小明没有带伞，他怎么了？", ["衣服湿了", "睡着了", "吃饱了", "长高了"], 0),
    ("天黑了，妈妈走进房间，先做什么？", ["种树", "开灯", "游泳", "卖书"], 1),
    ("老师问了一个问题，学生应该做什么？", ["唱歌", "跑步", "回答", "睡觉"], 2),
    ("冬天很冷，出门的时候要穿什么？", ["短裤", "凉鞋", "泳衣", "大衣"], 3),
    ("河里的水结了冰，是因为什么？", ["天气冷", "花开了", "人很多", "路很远"], 0),
    ("他走了很远的路，现在最想做什么？", ["再走一天", "坐下休息", "去爬山", "去打球"], 1),
    ("图书馆里的人都在做什么？", ["做饭", "下雨", "看书", "开车"], 2),
    ("她想知道现在几点，应该看什么？", ["鞋子", "杯子", "窗户", "钟表"], 3),
]
UNSEEN = ("他口渴了，应该喝什么？", ["石头", "木头", "水", "纸"])


def encode(tokenizer: AlbertTokenizer, items: list[tuple[str, list[str]]]) -> dict[str, torch.Tensor]:
    """Encode every question with each of its choices: tensors of questions x 4 x tokens."""
    questions = [question for question, choices in items for _ in choices]
    choices = [choice for _, choices in items for choice in choices]
    flat = tokenizer(questions, choices, padding=True, return_tensors="pt")
    return {name: tensor.view(len(items), 4, -1) for name, tensor in flat.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune a model on questions with four choices.")
    parser.add_argument("model", type=model_folder, help="folder that `albert-data export` wrote")
    parser.add_argument("--steps", type=int, default=60, help="updates of the weights")
    parser.add_argument("--lr", type=float, default=5e-4, help="learning rate")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = load(AlbertTokenizer, arguments.model)
    model = load(AlbertForMultipleChoice, arguments.model)

    batch = encode(tokenizer, [(question, choices) for question, choices, _ in QUESTIONS])
    labels = torch.tensor([right for _, _, right in QUESTIONS])
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    model.train()
    for step in range(1, arguments.steps + 1):
        loss = model(**batch, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 1 or step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}")

    model.eval()
    with torch.no_grad():
        chosen = model(**batch).logits.argmax(-1)
        scores = model(**encode(tokenizer, [UNSEEN])).logits.softmax(-1)[0]
    print(f"right: {(chosen == labels).sum()} of {len(labels)}")
    print(UNSEEN[0])
    for choice, score in zip(UNSEEN[1], scores.tolist(), strict=True):
        print(f"{score:6.1%}  {choice}")


if __name__ == "__main__":
    main()
