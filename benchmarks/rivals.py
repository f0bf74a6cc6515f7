"""The rivals of today's Python: Hugging Face tokenizers, and datasets.map with transformers' ALBERT tokenizer.

Both get the pieces, scores and normalisation of the same SentencePiece model, and one thread. A rival that is not
installed, or takes no such model, is reported with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import sentencepiece

from albert_data import load_tokenizer
from albert_data.tokenizer.proto import UNIGRAM, read_settings

# Read by the libraries when they are imported; they are asked for no network and no second thread.
os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", HF_HUB_OFFLINE="1")

NOT_INSTALLED = "not installed: pip install -e '.[bench]'"
NO_BPE = "takes unigram models alone"
SEQ_LEN, BATCH_ROWS = 512, 32

Encode = Callable[[list[str]], object]


def _read_model(tokenizer: Path) -> tuple[list[tuple[str, float]], bytes, int] | None:
    """Pieces with scores, replacements of the normalisation, and the unknown id; None if it is no unigram model."""
    model = load_tokenizer(tokenizer).model
    settings = read_settings(model)
    if settings.model_type != UNIGRAM:
        return None
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]
    return pieces, settings.charsmap, processor.unk_id()


def find_tokenizers(tokenizer: Path) -> tuple[Encode | None, str]:
    """The encoding of a list of str by `tokenizers`, or None with the reason."""
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
    """Tokenise, chunk to 512 and mask with datasets and transformers; or None with the reason.

    DataCollatorForLanguageModeling masks pieces: its masking of whole words needs offsets as well, which costs
    more. transformers dropped the sentence order task, so there are no pairs.
    """
    if (model := _read_model(tokenizer)) is None:
        return None, NO_BPE
    try:
        import datasets
        import torch
        from transformers import AlbertTokenizerFast, DataCollatorForLanguageModeling
    except ImportError:
        return None, NOT_INSTALLED
    pieces, charsmap, _ = model
    rival = AlbertTokenizerFast(
        vocab=pieces, do_lower_case=False, keep_accents=True, _spm_precompiled_charsmap=charsmap or None
    )
    rival.model_max_length = 1 << 60  # lines are chunked after they were tokenised; no warning for a long one
    collate = DataCollatorForLanguageModeling(rival)
    datasets.disable_caching()
    datasets.disable_progress_bars()
    torch.set_num_threads(1)

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
    """DataCollatorForLanguageModeling on lists of ids, with one thread; or None with the reason."""
    if (model := _read_model(tokenizer)) is None:
        return None, NO_BPE
    try:
        import torch
        from transformers import AlbertTokenizerFast, DataCollatorForLanguageModeling
    except ImportError:
        return None, NOT_INSTALLED
    pieces, charsmap, _ = model
    rival = AlbertTokenizerFast(
        vocab=pieces, do_lower_case=False, keep_accents=True, _spm_precompiled_charsmap=charsmap or None
    )
    collate = DataCollatorForLanguageModeling(rival, mlm_probability=0.15)
    torch.set_num_threads(1)
    return lambda rows: collate([{"input_ids": ids} for ids in rows]), ""


def chunk(ids: Sequence[list[int]], cls_id: int, sep_id: int) -> dict[str, list[list[int]]]:
    """All tokens one after another, in rows of SEQ_LEN with their special pieces."""
    flat, room = list(chain.from_iterable(ids)), SEQ_LEN - 2
    return {"input_ids": [[cls_id, *flat[at : at + room], sep_id] for at in range(0, len(flat), room)]}
