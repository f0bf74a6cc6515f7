"""The rivals in Python: Hugging Face tokenizers, and datasets.map with transformers' ALBERT tokenizer.

Both use the pieces, scores and normalisation of the same SentencePiece model, and one thread. A rival that is not
installed, or does not support the model, is reported with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import sentencepiece

from albert_data import load_tokenizer
from albert_data.tokenizer.sentencepiece.proto import UNIGRAM, read_settings

# The libraries read these when they are imported: no network, and no second thread.
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", HF_HUB_OFFLINE="1")

NOT_INSTALLED = "not installed: pip install -e '.[bench]'"
NO_BPE = "supports only unigram models"
SEQ_LEN, BATCH_ROWS = 512, 32

Encode = Callable[[list[str]], object]


def _read_model(tokenizer: Path) -> tuple[list[tuple[str, float]], bytes, int] | None:
    """Return pieces with scores, the normalisation rules and the unknown id; None if it is not a unigram model."""
    model = load_tokenizer(tokenizer).model
    settings = read_settings(model)
    if settings.model_type != UNIGRAM:
        return None
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]
    return pieces, settings.charsmap, processor.unk_id()


def find_tokenizers(tokenizer: Path) -> tuple[Encode | None, str]:
    """Return a function that encodes a list of str with `tokenizers`, or None with the reason."""
    if (model := _read_model(tokenizer)) is None:
        return None, NO_BPE
    try:
        from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    except ImportError:
        return None, NOT_INSTALLED
    pieces, charsmap, unk_id = model
    rival = Tokenizer(models.Unigram(pieces, unk_id=unk_id))
    spaces = [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    rival.normalizer = normalizers.Sequence([*([normalizers.Precompiled(charsmap)] if charsmap else []), *spaces])
    rival.pre_tokenizer = pre_tokenizers.Metaspace()
    return lambda texts: rival.encode_batch_fast(texts, add_special_tokens=False), ""


def find_datasets(tokenizer: Path) -> tuple[Encode | None, str]:
    """Return a function that tokenises, cuts to 512 and masks with datasets and transformers, or None with the reason.

    DataCollatorForLanguageModeling masks pieces: masking whole words needs offsets too, which is slower. transformers
    dropped the sentence order task, so there are no pairs.
    """
    if (model := _read_model(tokenizer)) is None:
        return None, NO_BPE
    try:
        import datasets
    except ImportError:
        return None, NOT_INSTALLED
    if (made := _make_collator(model)) is None:
        return None, NOT_INSTALLED
    rival, collate = made
    rival.model_max_length = 1 << 60  # lines are cut after tokenising, so a long one needs no warning
    datasets.disable_caching()
    datasets.disable_progress_bars()

    def tokenise(batch: dict[str, list[str]]) -> dict[str, Any]:
        return chunk(
            rival(batch["text"], add_special_tokens=False)["input_ids"], rival.cls_token_id, rival.sep_token_id
        )

    def encode(lines: list[str]) -> int:
        rows = datasets.Dataset.from_dict({"text": lines}).map(
            tokenise, batched=True, remove_columns=["text"], keep_in_memory=True
        )
        batches = (rows[at : at + BATCH_ROWS]["input_ids"] for at in range(0, len(rows), BATCH_ROWS))
        return sum(collate([{"input_ids": ids} for ids in batch])["labels"].numel() for batch in batches)

    return encode, ""


def find_collator(tokenizer: Path) -> tuple[Callable[[list[list[int]]], Any] | None, str]:
    """Return a function that masks and pads lists of ids with one thread, or None with the reason."""
    if (model := _read_model(tokenizer)) is None:
        return None, NO_BPE
    if (made := _make_collator(model)) is None:
        return None, NOT_INSTALLED
    _, collate = made
    return lambda rows: collate([{"input_ids": ids} for ids in rows]), ""


def _make_collator(model: tuple[list[tuple[str, float]], bytes, int]) -> tuple[Any, Any] | None:
    """Return transformers' tokenizer and its collator for 15 % of masks; None if it is not installed."""
    try:
        import torch
        from transformers import AlbertTokenizerFast, DataCollatorForLanguageModeling
    except ImportError:
        return None
    torch.set_num_threads(1)
    pieces, charsmap, _ = model
    rival = AlbertTokenizerFast(
        vocab=pieces, do_lower_case=False, keep_accents=True, _spm_precompiled_charsmap=charsmap or None
    )
    return rival, DataCollatorForLanguageModeling(rival, mlm_probability=0.15)


def chunk(ids: Sequence[list[int]], cls_id: int, sep_id: int) -> dict[str, list[list[int]]]:
    """Concatenate all tokens and cut them into rows of SEQ_LEN with their special pieces."""
    flat, capacity = list(chain.from_iterable(ids)), SEQ_LEN - 2
    return {"input_ids": [[cls_id, *flat[i : i + capacity], sep_id] for i in range(0, len(flat), capacity)]}
