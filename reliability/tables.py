"""Tables for the fuzzer: sound ones, with every kind of column that is read, and odd ones.

In: the documents of a corpus. Out: the bytes of Parquet files, Arrow files and Arrow streams.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

import pyarrow
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet

from reliability.cases import Oddity

_KINDS = (
    *(pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()),
    pyarrow.dictionary(pyarrow.int8(), pyarrow.string()),
    pyarrow.dictionary(pyarrow.int32(), pyarrow.large_string()),
)
_LANGUAGES = ("en", "de", None, "zh")
_MANY = 2**31 - 1  # rows of one record batch that pyarrow writes
Write = Callable[[pyarrow.Table], bytes]


def make_tables(text: bytes) -> list[pyarrow.Table]:
    """A table without nulls, and one for each kind of text. `lang` is of the same kind; others are nested or typed."""
    documents = text.decode().strip().split("\n\n")
    numbers = pyarrow.array(range(len(documents)), pyarrow.int32())
    typed = {
        "id": numbers.cast(pyarrow.int64()),
        "day": numbers.view(pyarrow.date32()),
        "at": numbers.cast(pyarrow.int64()).view(pyarrow.timestamp("ns", "UTC")),
        "price": numbers.cast(pyarrow.decimal128(12, 2)).dictionary_encode(),
    }
    languages = [_LANGUAGES[number % 4] for number in range(len(documents))]
    return [
        pyarrow.table({"text": documents, "lang": ["en"] * len(documents)} | typed),
        *(
            pyarrow.table(
                {
                    "text": pyarrow.array([None, *documents[1:]]).cast(kind),
                    "lang": pyarrow.array(languages).cast(kind),
                    "meta": [{"urls": [["u"]], "text": "x"}] * len(documents),
                }
                | typed
            )
            for kind in _KINDS
        ),
    ]


def write_parquet(table: pyarrow.Table) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file, row_group_size=20)
    return file.getvalue()


def write_feather(table: pyarrow.Table) -> bytes:
    """An Arrow file whose buffers are compressed."""
    file = io.BytesIO()
    pyarrow.feather.write_feather(table, file)
    return file.getvalue()


def write_stream(table: pyarrow.Table, rows: int = 10) -> bytes:
    file = io.BytesIO()
    with pyarrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return file.getvalue()


def table_oddities(write: Write) -> list[Oddity]:
    """Tables with a field `lang`, which names the languages."""
    texts = pyarrow.array(["A river.", "A sea."])
    labels = {
        "a label of lists": pyarrow.array([["en"], ["de"]]),
        "a label of lists in structs": pyarrow.array([{"a": [["en"]]}, None]),
        "a label of numbers": pyarrow.array([1, 2]),
        "a label of maps": pyarrow.array([[("a", "b")], []], pyarrow.map_(pyarrow.string(), pyarrow.string())),
        "a label of nulls": pyarrow.nulls(2),
        "a label that is no UTF-8": pyarrow.array([b"\xff", b"en"]).view(pyarrow.string()),
    }
    return [
        *(
            Oddity(name=name, make=partial(write, pyarrow.table({"text": texts, "lang": label})))
            for name, label in labels.items()
        ),
        Oddity(name="a text of nulls", make=partial(write, pyarrow.table({"text": pyarrow.nulls(2), "lang": texts}))),
        Oddity(name="two texts", make=partial(write, pyarrow.table([texts, texts], names=["text", "text"]))),
        Oddity(name="two labels", make=partial(write, pyarrow.table([texts] * 3, names=["text", "lang", "lang"]))),
        Oddity(name="many columns", make=partial(write, pyarrow.table({f"x{i}": texts for i in range(3000)}))),
        Oddity(name="no column", make=partial(write, pyarrow.table({}))),
    ]


def stream_oddities() -> list[Oddity]:
    """Streams as `table_oddities`, and some that only pyarrow's parts can make."""
    texts = pyarrow.array(["A river.", "A sea."])
    far = pyarrow.array([0, 1 << 29, 14], pyarrow.int32()).buffers()[1]  # pyarrow checks the first and the last
    label = pyarrow.Array.from_buffers(pyarrow.string(), 2, [None, far, texts.buffers()[2]])
    rows = pyarrow.Array.from_buffers(pyarrow.null(), _MANY, [None])
    index = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 9]), texts, safe=False)
    tables = {
        "offsets of a label beyond its data": {"text": texts, "lang": label},
        "offsets of a text beyond its data": {"text": label, "lang": texts},
        "an index beyond its dictionary": {"text": index, "lang": index},
        "rows without bytes": {"text": rows, "lang": rows},
    }
    return [
        *table_oddities(write_stream),
        *(
            Oddity(name=name, make=partial(write_stream, pyarrow.table(columns), _MANY))
            for name, columns in tables.items()
        ),
    ]
