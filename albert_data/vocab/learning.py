"""Train a vocabulary on any input that a build reads, in bounded memory: read, count characters, train, report.

The vocabulary depends on the documents and the settings alone.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np

from albert_data.config import AS_IS, NFC, BuildConfig, TextConfig, VocabConfig
from albert_data.corpus.inputs import Input, check_fields, check_reach, list_texts
from albert_data.corpus.layout import advise
from albert_data.corpus.sources import advise_names
from albert_data.jobs.engine import Engine, spans_machines
from albert_data.jobs.progress import NullProgress, Progress
from albert_data.shards.advice import advise_inputs, advise_separators, list_damaged, list_unused
from albert_data.survey.mixed_sources import check_alpha, list_sources
from albert_data.tokenizer.buffers import join_strings
from albert_data.vocab.alphabet import choose_alphabet, measure_unspaced
from albert_data.vocab.counting import CharacterCounts, NormalCounter, NormalRule
from albert_data.vocab.process import train_apart
from albert_data.vocab.reading import SampledCorpus, read_corpus
from albert_data.vocab.report import VocabReport
from albert_data.vocab.training import VocabularyTooLarge, train_model

_MOST_UNSPACED = 0.5  # a model gets no dummy prefix if more of the letters are in scripts without spaces


def learn_vocabulary(
    inputs: list[Input],
    text: TextConfig,
    config: VocabConfig,
    engine: Engine,
    progress: Progress | None = None,
    *,
    shrink: bool = False,
    shared: Path | None = None,
    repeated: Path | None = None,
    allow_loss: bool = False,
) -> VocabReport:
    """Sample the sentences of a corpus and train a model on them.

    shrink: if the text supports fewer pieces than asked for, train as many as it supports.
    shared: a folder that every machine sees, in which tasks leave their candidates. Without it they are returned.
    repeated: the file with the hashes of lines to remove, None to remove none.
    allow_loss: train also if over half of the corpus, or of a file that the user named, can't be read.
    Raises InputError for a corpus without documents, TokenizerError if the training fails.
    """
    check_fields(inputs, text)
    check_reach(inputs, spans_machines=spans_machines(engine))
    for source in list_sources(inputs):
        if config.alpha is None and source.alpha is not None:  # that of a mixture's file
            config = dataclasses.replace(config, alpha=source.alpha, max_passes=source.max_passes)
    if not list_sources(inputs):
        check_alpha(inputs, BuildConfig(text=text, alpha=config.alpha, max_passes=config.max_passes))
    progress = progress or NullProgress()
    corpus = read_corpus(
        inputs, text, config, engine, progress, shared=shared, repeated=repeated, allow_loss=allow_loss
    )
    max_passes = 1.0 if config.alpha is None else config.max_passes
    sentences = [one for sample in corpus.samples.values() for one in sample.sentences(max_passes)]
    characters = CharacterCounts.of(corpus.totals)
    unspaced_share = measure_unspaced(characters)
    if config.dummy_prefix is None:
        config = dataclasses.replace(config, dummy_prefix=unspaced_share <= _MOST_UNSPACED)
    weighted = None if config.alpha is None else _weigh(sentences, corpus.totals, config)
    alphabet = choose_alphabet(characters, config, weighted)
    size = sum(map(len, sentences)) / 1e6
    progress.say(
        f"training a {config.model_type} vocabulary of {config.vocab_size:,} pieces on {size:,.1f} MB of sentences"
    )
    train = partial(train_model, sentences, alphabet=alphabet, trainer=partial(train_apart, progress))
    try:
        trained = train(config)
    except VocabularyTooLarge as error:
        if not shrink:
            raise
        progress.say(f"the text supports no more than {error.largest:,} pieces; training that many")
        config = dataclasses.replace(config, vocab_size=error.largest)
        trained = train(config)
    return VocabReport(
        trained=trained,
        config=config,
        alphabet=alphabet,
        unicode=NFC if all(one.unicode == NFC for one in list_texts(inputs, text)) else AS_IS,
        unspaced_share=unspaced_share,
        num_documents=corpus.num_documents,
        text_bytes=corpus.text_bytes,
        damage=dict(corpus.damage.counts),
        removed=corpus.damage.removed,
        advice=_advise(inputs, text, corpus),
    )


def _weigh(sentences: list[bytes], totals: np.ndarray, config: VocabConfig) -> CharacterCounts:
    """How often each character occurs in the sample, of which a source has its share; the others of the corpus once."""
    counter, weighted = NormalCounter(NormalRule(config.cased)), np.minimum(totals, 1)
    counter.add(join_strings(list(map(bytes.decode, sentences))))
    counter.finish().add_to(weighted)
    return CharacterCounts.of(weighted)


def _advise(inputs: list[Input], text: TextConfig, corpus: SampledCorpus) -> list[str]:
    """Options that would read the corpus better, a sentence each."""
    damage = corpus.damage
    counts = {"documents": corpus.num_documents, **damage.layout}
    return [
        *(one.text for one in advise(counts, dataclasses.asdict(text), [item.path for item in inputs])),
        *advise_names(damage.names),
        *advise_separators(list_unused(list_texts(inputs, text), damage)),
        *advise_inputs(list_damaged(damage.inputs)),
    ]
