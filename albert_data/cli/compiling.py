"""Compile what `quickstart` needs in a second process, the first time on a machine.

The first process learns a vocabulary meanwhile, which needs the kernels that read text. The second one begins with
those of a build. Where both need a kernel, one of them compiles it (kernels/cache.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from albert_data.storage.scratch import machine_scratch

_DOCUMENTS = [f"Here are {i}1, {i}2 and {i}3. Then come {i}4, {i}5 and {i}6." for i in range(20)]  # for both splits
_DONE = "compiled-for-quickstart"
_MODEL = {
    **{"vocab_size": 100, "hard_vocab_limit": False, "minloglevel": 2},
    **{"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": "[CLS],[SEP],[MASK]"},
}


@contextmanager
def compiling_beside() -> Iterator[None]:
    """Compile during the block, unless that was done, or there is one core or no folder to keep kernels."""
    from albert_data.jobs.engine import count_cores, run_beside
    from albert_data.kernels.cache import find_folder

    folder = find_folder()
    if folder is None or count_cores() < 2 or (folder / _DONE).exists():
        yield
        return
    with run_beside(partial(compile_all, folder / _DONE)):
        yield


def compile_all(mark: Path) -> None:
    """Build shards of a few words, audit them and report on them: all kernels for it are kept. Then write the mark."""
    from albert_data.library.building import build
    from albert_data.library.shards import audit_shards, inspect_shards
    from albert_data.vocab.process import train

    logging.disable()
    with suppress(Exception), machine_scratch() as folder:  # the first process meets what is wrong, and says so
        corpus, shards, model = folder / "text.txt", folder / "shards", folder / "spiece.model"
        corpus.write_text("\n\n".join(_DOCUMENTS))
        model.write_bytes(train([line.encode() for line in _DOCUMENTS], _MODEL))
        build(corpus, shards, tokenizer=model, workers=1)
        audit_shards(shards, corpus=corpus)
        inspect_shards(shards, html=folder / "report.html")
        mark.touch()
