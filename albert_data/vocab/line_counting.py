"""Find the lines that `--drop-repeated-lines` removes: a reading of the corpus of its own, on an engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from albert_data.clean.documents import clean_documents
from albert_data.config import DEFAULT_TEXT, TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import STDIN, Input, count_bytes, list_samples
from albert_data.corpus.tasks import WARMING_BLOCK, ReadTask, compile_reading, read_tasks
from albert_data.errors import InputError
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.engine import Engine, PreparedJob, spans_machines
from albert_data.jobs.progress import Progress
from albert_data.storage import FILE, find_kind, find_storage
from albert_data.survey.repeated_lines import LineJob, find_place, list_lines, write_repeated
from albert_data.survey.sorted_columns import SortedFile


def check_rereadable(inputs: Sequence[Input], text: TextConfig) -> None:
    """Raise InputError if lines are to be counted in an input that can be read only once."""
    streams = [item.path for item in inputs if item.is_stream]
    if streams and text.drop_repeated_lines is not None:
        name = "stdin" if streams[0] == STDIN else streams[0]
        raise InputError(
            f"--drop-repeated-lines reads the corpus twice, and {name} can be read only once; write it to a file, and "
            "give that"
        )


def compile_counting() -> None:
    """Run the kernels of a LineJob on a few words."""
    compile_reading()
    list_lines(clean_documents(WARMING_BLOCK, DEFAULT_TEXT, Damage()))


def find_repeated_lines(
    inputs: list[Input], text: TextConfig, folder: Path, engine: Engine, progress: Progress
) -> Path | None:
    """The file with the hashes of repeated lines; None if the settings remove none.

    folder: that every worker sees. If the file is there, a killed command has written it for the same inputs.
    """
    least, path = text.drop_repeated_lines, find_place(folder)
    if least is None or find_kind(path) == FILE:
        return None if least is None else path
    find_storage(folder).make_folder(folder)
    compile_with_notice(compile_counting, progress.say)
    job = LineJob(text.strict, least, folder)
    prepared = PreparedJob[ReadTask, list[SortedFile]](
        job=job, name="count lines", prepare=compile_counting, places=tuple(list_samples(inputs))
    )
    progress.start("counting lines", count_bytes(inputs))
    files = []
    tasks = read_tasks(inputs, text, Damage(strict=text.strict), lambda task: spans_machines(engine))
    for task, found in engine.run(prepared, tasks):
        files += found
        progress.advance(task.num_bytes)
    return write_repeated(folder, files, least)
