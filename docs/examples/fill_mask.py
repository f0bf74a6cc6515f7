"""Fill in the [MASK] of a text with your own model, without a network.

albert-data export RUN -o MODEL
python docs/examples/fill_mask.py MODEL "The cat sat on the [MASK]."
"""

from __future__ import annotations

import argparse

from toy_tasks import load, model_folder
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill in the [MASK] of a text.")
    parser.add_argument("model", type=model_folder, help="folder that `albert-data export` wrote")
    parser.add_argument("text", help="a text with one [MASK]")
    parser.add_argument("--top", type=int, default=5, help="guesses to show")
    arguments = parser.parse_args()
    if arguments.text.count("[MASK]") != 1:
        parser.error("the text needs one [MASK]")
    model, tokenizer = load(AutoModelForMaskedLM, arguments.model), load(AutoTokenizer, arguments.model)
    fill = pipeline("fill-mask", model=model, tokenizer=tokenizer)
    for guess in fill(arguments.text, top_k=arguments.top):
        print(f"{guess['score']:6.1%}  {guess['token_str']}")


if __name__ == "__main__":
    main()
