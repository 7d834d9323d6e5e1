"""Child process that reads small files with gigabytes of decoded data (bombs), under a limit on its address space.

``python -m tests.fuzz.bombs PLACE`` prints a JSON object with the outcome of each file: the error or the number of
rows, and the MiB of peak memory. A table of such files is read, filtered and compacted, too.
"""

from __future__ import annotations

import json
import random
import resource
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_core.compact import run_tasks_locally
from lsm_core.errors import DredgeError
from lsm_core.files.formats import open_source, thrift
from lsm_core.metadata.store import TableStore
from lsm_core.read import plan_scan, to_batches
from lsm_core.storage import LocalFileIO
from tests.support import parquet_files as p
from tests.support.stores import full_tasks, make_store, write

MIB = 1 << 20
_ROWS = 100_000


def one_text(length: int, rows: int = _ROWS, codec: int = p.ZSTD) -> bytes:
    """Return a file with ``rows`` rows of the same dictionary text."""
    pages = p.dictionary_page([b"a" * length], codec)
    pages += p.data_page(b"\x01" + p.run(rows, 0), rows, p.RLE_DICTIONARY, codec)
    return p.parquet_file([p.column("c", p.BYTE_ARRAY)], [pages], [rows], rows, codec)


def late_text(length: int) -> bytes:
    """Return a file with a page of plain texts, followed by a page of one long dictionary text."""
    first = p.data_page((1).to_bytes(4, "little") + b"x", 1, p.PLAIN)
    rest = p.data_page(b"\x01" + p.run(_ROWS, 1), _ROWS, p.RLE_DICTIONARY)
    pages = p.dictionary_page([b"x", b"a" * length]) + first + rest
    return p.parquet_file([p.column("c", p.BYTE_ARRAY)], [pages], [_ROWS + 1], _ROWS + 1)


def prefixes(length: int) -> bytes:
    """Return a file of delta-encoded texts that repeat the previous text entirely."""
    count = 128 * 128
    prefix = _delta([0] + [length] * (count - 1))
    suffix = _delta([length] + [0] * (count - 1))
    page = p.data_page(prefix + suffix + b"a" * length, count, p.DELTA_BYTE_ARRAY)
    return p.parquet_file([p.column("c", p.BYTE_ARRAY)], [page], [count], count)


def _delta(values: list[int]) -> bytes:
    """Encode integers as DELTA_BINARY_PACKED; the bytes come from a file that Arrow wrote."""
    sink = pa.BufferOutputStream()
    table = pa.table([pa.array(values, pa.int32())], pa.schema([pa.field("c", pa.int32(), nullable=False)]))
    settings = {"compression": "none", "use_dictionary": False, "write_batch_size": len(values)}
    pq.write_table(table, sink, column_encoding={"c": "DELTA_BINARY_PACKED"}, data_page_size=1 << 30, **settings)
    data = sink.getvalue().to_pybytes()
    reader = thrift.Reader(data, 4)
    header = reader.struct()
    assert header[5][1][1] == (thrift.I32, len(values))
    return data[reader.at : reader.at + header[2][1]]


def long_list(count: int, rows: int = 1) -> bytes:
    """Return a file of ``rows`` lists, the last of which has ``count`` equal numbers."""
    repeats = p.levels(p.run(rows, 0), p.run(count - 1, 1))
    plain = repeats + p.levels(p.run(rows + count - 1, 1)) + b"\x01" + p.run(rows + count - 1, 0)
    values: thrift.Struct = {1: (p.I32, 1), 2: (p.I32, p.PLAIN)}
    value = p.packed((7).to_bytes(8, "little"), p.ZSTD)
    header: thrift.Struct = {1: (p.I32, 2), 2: (p.I32, 8), 3: (p.I32, len(value)), 7: (p.STRUCT, values)}
    pages = thrift.encode(header) + value + p.data_page(plain, rows + count - 1, p.RLE_DICTIONARY)
    return p.parquet_file([p.list_column("c", p.INT64)], [pages], [rows + count - 1], rows)


def empty_texts(count: int) -> bytes:
    """Return a file with one page of ``count`` empty texts."""
    page = p.data_page(bytes(4 * count), count, p.PLAIN)
    return p.parquet_file([p.column("c", p.BYTE_ARRAY)], [page], [count], count)


def claimed(size: int) -> bytes:
    """Return a file with a page whose header claims ``size`` decoded bytes."""
    page = p.data_page(bytes(8 * 1000), 1000, p.PLAIN, claims=size)
    return p.parquet_file([p.column("c", p.INT64)], [page], [1000], 1000)


def fixed(length: int) -> bytes:
    """Return a file of equal values with the large fixed length ``length``."""
    stored = p.packed(b"a" * length, p.ZSTD)
    values: thrift.Struct = {1: (p.I32, 1), 2: (p.I32, p.PLAIN)}
    header: thrift.Struct = {1: (p.I32, 2), 2: (p.I32, length), 3: (p.I32, len(stored)), 7: (p.STRUCT, values)}
    pages = thrift.encode(header) + stored + p.data_page(b"\x01" + p.run(_ROWS, 0), _ROWS, p.RLE_DICTIONARY)
    return p.parquet_file([p.column("c", p.FIXED, length)], [pages], [_ROWS], _ROWS)


def many(columns: int, length: int) -> bytes:
    """Return a file of many columns, each with one dictionary text."""
    schema = [p.column(f"c{i}", p.BYTE_ARRAY) for i in range(columns)]
    pages = p.dictionary_page([b"a" * length]) + p.data_page(b"\x01" + p.run(_ROWS, 0), _ROWS, p.RLE_DICTIONARY)
    return p.parquet_file(schema, [pages] * columns, [_ROWS] * columns, _ROWS)


BOMBS: dict[str, Callable[[], bytes]] = {
    "a text of 50 KB, 100,000 times": lambda: one_text(50_000),
    "a text of 1 MiB, 5,000 times": lambda: one_text(MIB, 5_000),
    "a text of 60 MiB, 80 times": lambda: one_text(60 * MIB, 80),
    "a text of 65 MiB, 80 times": lambda: one_text(65 * MIB, 80),
    "a text of 1 MiB as it is, 5,000 times": lambda: one_text(MIB, 5_000, p.NONE),
    "a long text after a plain page": lambda: late_text(MIB // 8),
    "a prefix of 1 MiB, 16,384 times": lambda: prefixes(MIB),
    "a list of a billion numbers": lambda: long_list(1 << 30),
    "a list of a billion numbers after a million": lambda: long_list(1 << 30, 1 << 20),
    "134 million empty texts": lambda: empty_texts(1 << 27),
    "a page that claims 2 GiB": lambda: claimed(2**31 - 1),
    "a value of a fixed 60 MiB": lambda: fixed(60 * MIB),
    "200 columns of 8 MiB": lambda: many(200, 8 * MIB),
    "16 columns of 1 MiB": lambda: many(16, MIB),
}


def bombed_table(root: Path) -> TableStore:
    """Create a primary-key table of two level-0 files, in which each row has a text of 256 KiB: 1 GiB decoded."""
    rows, text = 2_000, MIB // 4
    store = make_store(root, {"k": "INT NOT NULL", "v": "STRING"}, ["k"], (), {"bucket": "1", "write-only": "true"})
    chance = random.Random(1)
    for _ in range(2):
        texts = [chance.randbytes(24).hex() for _ in range(rows)]  # so that the bombs take no more bytes
        write(store, pa.table({"k": pa.array(range(rows), pa.int32()), "v": texts}))
    for path in root.glob("bucket-0/*.parquet"):
        before = path.read_bytes()
        schema, pages = [], []
        stored = pq.read_table(path, partitioning=None)
        for field, column in zip(stored.schema, stored.columns, strict=True):
            wide = pa.types.is_int64(field.type)
            element = p.column(field.name, p.INT64 if wide else p.INT32)
            page = (
                p.data_page(column.to_numpy().astype("<i8" if wide else "<i4").tobytes(), rows, p.PLAIN)
                if field.name != "v"
                else b""
            )
            if field.name == "v":
                element = p.column("v", p.BYTE_ARRAY)
                page = p.dictionary_page([b"a" * text]) + p.data_page(b"\x01" + p.run(rows, 0), rows, p.RLE_DICTIONARY)
            elif field.name == "_VALUE_KIND":
                element[0][6] = (p.I32, 15)  # INT_8
            if number := (field.metadata or {}).get(b"PARQUET:field_id"):
                element[0][9] = (p.I32, int(number))
            schema.append(element)
            pages.append(page)
        made = p.parquet_file(schema, pages, [rows] * len(schema), rows)
        footer = 8 + int.from_bytes(made[-8:-4], "little")
        # The manifest tells the size: what is missing stands between the pages and the footer.
        path.write_bytes(made[:-footer] + bytes(len(before) - len(made)) + made[-footer:])
    return store


def _table(root: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    store = bombed_table(root)
    tasks = full_tasks(store)
    yield "read", lambda: sum(batch.num_rows for batch in to_batches(store, plan_scan(store)))
    wanted = [("v", "=", "a" * (MIB // 4))]
    yield "filtered", lambda: sum(batch.num_rows for batch in to_batches(store, plan_scan(store, filter=wanted)))
    yield (
        "compacted",
        lambda: sum(r.message.compact_after[0].row_count for r in run_tasks_locally(store, tasks, threads=1)),
    )


def main(place: Path) -> None:
    """Read every bomb in ``place`` and a table of bombs, and print the outcomes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    found = {path.stem: _outcome(partial(_read, path)) for path in sorted(place.glob("*.parquet"))}
    for name, action in _table(place / "table"):
        found[name] = _outcome(action)
    print(json.dumps(found))


def _outcome(action: Callable[[], int]) -> tuple[str, int]:
    """Return the result or error of an action, and the MiB that it added at its peak."""
    Path("/proc/self/clear_refs").write_text("5")
    before, limit = _status("VmRSS"), (_status("VmSize") + (1536 << 10)) << 10
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        outcome = str(action())
    except DredgeError as error:
        outcome = f"{type(error).__name__}: {error}"
    return outcome, (_status("VmHWM") - before) >> 10


def _read(path: Path) -> int:
    """Read batches up to 256 MiB, which is enough to check that memory is bounded; return the number of rows."""
    source = open_source(LocalFileIO(), str(path), table="db.t")
    rows = size = 0
    for batch in source.batches(source.schema.names, 65_536):
        rows += batch.num_rows
        size += batch.nbytes
        if size > 1 << 28:
            break
    source.close()
    return rows


def _status(key: str) -> int:
    """Return a memory figure of this process in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
