"""Scores sentences by their pseudo-log-likelihood under a masked language model.

In: pairs of sentences and a MaskedLm. Out: ScoredPairs. A sentence's score is the sum of log P(piece | the sentence
with this piece masked) over its pieces, without [CLS] and [SEP] (Salazar et al. 2020, section 2). Together with a
piece the later pieces of its word are masked (PLL-word-l2r, Kauf & Ivanova 2023): otherwise the rest of a long word
gives the piece away, and rare words score too high.
A sentence of n pieces takes n rows, one for each masked piece. Rows of equal length make a batch, so no batch has
padding.
Shape letters: S sentences of equal length, T tokens of each, B rows of a batch, V vocabulary; see batch.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albert_data.errors import CheckpointError, ConfigError, InputError, TokenizerError
from albert_data.interop.huggingface import CONFIG_FILE, import_model, load_run
from albert_data.interop.initial import USUAL_SETTINGS, find_normalization
from albert_data.interop.sentence_pairs import ScoreConfig, ScoredPairs, SentencePair
from albert_data.jobs.progress import NullProgress, Progress
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer, load_tokenizer
from albert_data.tokenizer.tokenizer_json import CONFIG_NAME
from albert_data.tokenizer.words import find_word_starts
from albert_data.train.device import Precision, choose_device, choose_precision
from albert_data.train.folder import RUN_FILE, list_files
from albert_data.train.model import Albert

_SHORTEST = 8  # tokens that a row counts as at least: the logits of 3-token rows would need more memory than the layers


class EncodedSentence(NamedTuple):
    """A sentence as tokens.

    input_ids: int64 [T], with [CLS] and [SEP].
    word_ends: int64 [T], for each token the index after its word, or 0 if it has no score.
    """

    input_ids: np.ndarray
    word_ends: np.ndarray


class MaskedLm:
    """An Albert, with the tokens of its shards: a sentence is one segment, `[CLS] A [SEP]`.

    max_len: tokens of the longest sentence, special ones included.
    """

    def __init__(self, model: Albert, tokenizer: Tokenizer) -> None:
        if tokenizer.vocab_size != model.config.vocab_size:
            raise ConfigError(
                f"the tokenizer has {tokenizer.vocab_size:,} pieces, but the model has {model.config.vocab_size:,}; "
                "give the tokenizer that it was trained with"
            )
        self._model, self._tokenizer = model.eval(), tokenizer
        self.max_len, self.mask_id = model.config.max_positions, tokenizer.mask_id

    def encode(self, sentences: list[str]) -> list[EncodedSentence]:
        tokenizer, found = self._tokenizer, []
        all_ids, offsets = tokenizer.encode([sentence.strip() for sentence in sentences])
        for ids in np.split(all_ids, offsets[1:-1]):
            begins = np.flatnonzero(find_word_starts(ids, tokenizer.word_rule()))
            ends = np.append(begins[1:], len(ids))[: len(begins)]
            word_ends = np.repeat(ends, ends - begins) + 1  # [CLS] moves each index by one
            input_ids = np.concatenate(([tokenizer.cls_id], ids, [tokenizer.sep_id])).astype(np.int64)
            found.append(EncodedSentence(input_ids, np.pad(word_ends, 1)))
        return found

    def to(self, device: torch.device) -> None:
        self._model.to(device)

    def predict(self, input_ids_BT: Tensor, positions_B: Tensor) -> Tensor:
        """Return logits_BV of one position of each row. No row has padding."""
        model, rows_B = self._model, torch.arange(len(positions_B), device=positions_B.device)
        valid_B11T = torch.ones_like(input_ids_BT, dtype=torch.bool)[:, None, None, :]
        x_BTH = model.encoder(model.embeddings(input_ids_BT, torch.zeros_like(input_ids_BT)), valid_B11T)
        logits_BV: Tensor = model.mlm_head(x_BTH[rows_B, positions_B], model.embeddings.token.weight)
        return logits_BV


def load_masked_lm(path: Path, *, checkpoint: Path | None = None) -> tuple[MaskedLm, Path]:
    """Return the model of a run, or of an ALBERT's Hugging Face folder, and the folder that its weights are from.

    checkpoint: as in `export_run`. Raises CheckpointError, ConfigError and TokenizerError.
    """
    if (path / RUN_FILE).is_file():
        origin, model, pieces = load_run(path, checkpoint=checkpoint)
        return MaskedLm(model, pieces), origin
    if checkpoint is not None:
        raise ConfigError(f"{path} is not a training run; leave out --checkpoint")
    if not (path / CONFIG_FILE).is_file():
        raise CheckpointError(
            f"{path} is neither a training run nor a Hugging Face folder ({RUN_FILE} and {CONFIG_FILE} are missing)"
        )
    model = import_model(path)
    if (normalization := find_normalization(path, USUAL_SETTINGS)) is None:
        raise TokenizerError(
            f"{path}: a {MODEL_NAME} is needed, and a {CONFIG_NAME} with both or neither of lower case and removed "
            "accents (do_lower_case, keep_accents); score such a model with transformers"
        )
    return MaskedLm(model, load_tokenizer(path / MODEL_NAME, normalization=normalization)), path


def list_read(path: Path, *, checkpoint: Path | None = None) -> Iterator[Path]:
    """The files and folders that `load_masked_lm` reads."""
    yield from list_files(path) if (path / RUN_FILE).is_file() else [path]
    if checkpoint is not None:
        yield checkpoint


def score_pairs(
    model: MaskedLm, pairs: Sequence[SentencePair], config: ScoreConfig, progress: Progress | None = None
) -> ScoredPairs:
    """Score both sentences of each pair.

    Raises InputError for a sentence without pieces or with more than the model has positions, CheckpointError if the
    model gives no number, ConfigError for a device that the machine lacks or if its memory runs out.
    """
    # On a CPU float32 even where bfloat16 is faster: a score is the sum of many small numbers.
    is_cpu = choose_device(config.device)[0].type == "cpu"
    precision = choose_precision("fp32" if is_cpu and config.precision == "auto" else config.precision, config.device)
    sentences, numbers = _encode_distinct(model, pairs)
    num_pieces = sum(int(np.count_nonzero(sentence.word_ends)) for sentence in sentences)
    progress = progress or NullProgress()
    progress.start("scoring sentences", num_pieces, "rows")
    model.to(precision.device)
    began = time.perf_counter()
    scores = _score_sentences(model, sentences, config.batch_tokens, precision, progress)
    seconds = time.perf_counter() - began
    for pair, own in zip(pairs, scores[numbers], strict=True):
        if not np.isfinite(own).all():
            raise CheckpointError(f"{pair.origin}: the model's score is not a number; its weights are damaged")
    good, bad = scores[numbers].T.tolist()
    count = len(sentences)
    return ScoredPairs(
        pairs=pairs, good_scores=good, bad_scores=bad, num_sentences=count, num_pieces=num_pieces, seconds=seconds
    )


def _encode_distinct(model: MaskedLm, pairs: Sequence[SentencePair]) -> tuple[list[EncodedSentence], np.ndarray]:
    """Return the distinct sentences, and the numbers of each pair's two among them, int64 of shape (pairs, 2).

    Sentences of equal tokens are scored once. So rounding, which differs from batch to batch, can't decide a tie.
    """
    encoded = model.encode([text for pair in pairs for text in (pair.good, pair.bad)])
    distinct: dict[tuple[bytes, bytes], tuple[int, EncodedSentence]] = {}
    numbers = []
    for index, sentence in enumerate(encoded):
        what = f"{pairs[index // 2].origin}: {('good', 'bad')[index % 2]}"
        if not sentence.word_ends.any():
            raise InputError(f"{what} has no pieces, only characters that the tokenizer drops")
        if len(sentence.input_ids) > model.max_len:
            raise InputError(
                f"{what} has {len(sentence.input_ids):,} tokens, but the model has {model.max_len:,} positions; "
                "shorten the sentence or remove the line"
            )
        key = (sentence.input_ids.tobytes(), sentence.word_ends.tobytes())
        numbers.append(distinct.setdefault(key, (len(distinct), sentence))[0])
    return [sentence for _, sentence in distinct.values()], np.array(numbers).reshape(-1, 2)


@torch.inference_mode()
def _score_sentences(
    model: MaskedLm, sentences: list[EncodedSentence], batch_tokens: int, precision: Precision, progress: Progress
) -> np.ndarray:
    """Return the score of each sentence, float64."""
    owners, log_probs = [], []
    try:
        for sentences_B, *arrays in _make_batches(sentences, model.mask_id, batch_tokens):
            input_ids_BT, positions_B, labels_B = (torch.from_numpy(one).to(precision.device) for one in arrays)
            with precision.autocast():
                logits_BV = model.predict(input_ids_BT, positions_B)
            # They stay on the device, so that it computes while the next batch is made.
            log_probs.append(-F.cross_entropy(logits_BV.float(), labels_B, reduction="none"))
            owners.append(sentences_B)
            progress.advance(len(labels_B))
        weights = torch.cat(log_probs).double().cpu().numpy()
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"the GPU's memory is too small for batches of {batch_tokens:,} tokens; give a smaller --batch-tokens"
        ) from error
    return np.bincount(np.concatenate(owners), weights, len(sentences))


def _make_batches(
    sentences: list[EncodedSentence], mask_id: int, batch_tokens: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the rows of all sentences, longest first: if memory is too small, that shows at once.

    Of rows of equal length, each with the masks of one piece: the number of the sentence, the input ids, the position
    and the id of the piece.
    """
    numbers_by_len: dict[int, list[int]] = {}
    for number, sentence in enumerate(sentences):
        numbers_by_len.setdefault(len(sentence.input_ids), []).append(number)
    for length in sorted(numbers_by_len, reverse=True):
        numbers_S = np.array(numbers_by_len[length])
        ids_ST = np.stack([sentences[number].input_ids for number in numbers_S])
        ends_ST = np.stack([sentences[number].word_ends for number in numbers_S])
        owners, positions = np.nonzero(ends_ST)  # a row for each piece that is scored
        num_rows = max(1, batch_tokens // max(length, _SHORTEST))
        for begin in range(0, len(owners), num_rows):
            owner_B, position_B = owners[begin : begin + num_rows], positions[begin : begin + num_rows]
            input_ids_BT, column_T = ids_ST[owner_B], np.arange(length)
            labels_B = input_ids_BT[np.arange(len(owner_B)), position_B]
            end_B = ends_ST[owner_B, position_B]
            # A word of pieces 3, 4, 5: the row of 4 masks 4 and 5, and sees 3.
            input_ids_BT[(column_T >= position_B[:, None]) & (column_T < end_B[:, None])] = mask_id
            yield numbers_S[owner_B], input_ids_BT, position_B, labels_B
