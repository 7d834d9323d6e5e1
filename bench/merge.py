"""Merge engines on one core: cost of ordering, grouping and folding against the copy limit, polars and DuckDB.

The input is five runs in memory; 45 % of the keys of each later run exist already. The copy limit decodes the same runs
from Parquet and encodes as many rows as the merged result has, on one thread.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # read when polars is imported

import numpy as np
import pyarrow as pa

from bench.data import text_column
from bench.harness import Result, alternate, in_own_process, ratio
from lsm_core.files.formats import parquet as settings
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.merge import RunInput, merge_function, merge_streams
from lsm_core.storage import LocalFileIO
from lsm_core.types import parse

RUNS = 5
ROWS = 2_500_000
UPDATED = 0.45
BATCH_ROWS = 65_536
_VALUES = [*(f"n{i}" for i in range(4)), *(f"x{i}" for i in range(2)), *(f"s{i}" for i in range(2))]
GROUPS = {
    "merge-engine": "partial-update",
    "fields.n0.sequence-group": "x0,s0",
    "fields.n1.sequence-group": "x1",
    "fields.n2.sequence-group": "n3,s1",
}
AGGREGATES = {
    "merge-engine": "aggregation",
    **{f"fields.n{i}.aggregate-function": name for i, name in enumerate(("sum", "max", "min", "sum"))},
    "fields.x0.aggregate-function": "sum",
    "fields.x1.aggregate-function": "max",
}


@dataclass(frozen=True)
class Case:
    """One benchmark: a table, its sorted runs, and queries of polars and DuckDB with the same result."""

    name: str
    target: float | None
    options: Mapping[str, str]
    columns: list[tuple[str, str]]
    runs: list[pa.RecordBatch]
    queries: Mapping[str, Callable[[pa.Table], object]]


def run(total: int | None, rounds: int) -> list[Result]:
    """Measure all engines against their targets, then the peak memory of two sizes."""
    results: list[Result] = []
    for case in _cases(total or ROWS):
        results += _measure(case, rounds)
    return results + _memory(total or ROWS)


def _cases(total: int) -> Iterator[Case]:
    plain = [("id", "BIGINT NOT NULL"), *((n, _type(n)) for n in _VALUES)]
    dense, sparse = _runs(total, 0.0), _runs(total, 0.3)
    yield Case("deduplicate", 0.15, {}, plain, dense, {"polars": _polars_last, "duckdb": _duckdb_last})
    update = {"merge-engine": "partial-update"}
    queries = {"polars": _polars_update, "duckdb": _duckdb_update}
    yield Case("partial-update", 0.5, update, plain, sparse, queries)
    yield Case("three sequence groups", 0.7, GROUPS, plain, sparse, {})
    yield Case("six aggregates", 0.35, AGGREGATES, plain, dense, {"polars": _polars_sums, "duckdb": _duckdb_sums})
    text = [("id", "STRING NOT NULL"), *plain[1:]]
    yield Case("deduplicate, key of 24 bytes", 0.3, {}, text, _with_text_key(dense, vary=False), {})
    yield Case("deduplicate, key of 9 to 24 bytes", 0.3, {}, text, _with_text_key(dense, vary=True), {})
    wide = [("id", "BIGINT NOT NULL"), *((f"c{i}", "BIGINT") for i in range(49))]
    yield Case("partial-update, 50 columns, 5 writers of 10", None, update, wide, _wide_runs(total // 5), {})


def _type(name: str) -> str:
    return {"n": "BIGINT", "x": "DOUBLE", "s": "STRING", "c": "BIGINT"}[name[0]]


def _measure(case: Case, rounds: int) -> list[Result]:
    fields = tuple(DataField(i, name, parse(kind)) for i, (name, kind) in enumerate(case.columns))
    schema = TableSchema(0, fields, len(fields) - 1, primary_keys=("id",))
    function = merge_function(schema, case.options, "bench.t")
    whole = pa.Table.from_batches(case.runs)
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/run-{number}.parquet" for number in range(len(case.runs))]
        for path, batch in zip(paths, case.runs, strict=True):
            _write(pa.Table.from_batches([batch]), path)
        merged = pa.Table.from_batches(merge_streams(_inputs(case.runs), function))

        def limit() -> None:
            for path in paths:
                _drain(_read(path))
            _write(merged, f"{folder}/out.parquet")
            Path(folder, "out.parquet").unlink()

        def subject() -> None:
            _drain(merge_streams(_inputs(case.runs), function))

        subjects: dict[str, Callable[[], object]] = {"limit": limit, "dredge": subject}
        subjects |= {who: _asking(query, whole) for who, query in case.queries.items()}
        times = alternate(subjects, rounds)
    results = ratio("merge", case.name, times["dredge"], times["limit"], case.target or 1e9, whole.num_rows)
    if case.target is None:
        results[0] = Result(**{**vars(results[0]), "target": None, "ok": None})
    for who in case.queries:
        results.append(
            Result("merge", f"{case.name}: {who} / dredge", times[who].median / times["dredge"].median, "x", None)
        )
    return results


def _asking(query: Callable[[pa.Table], object], whole: pa.Table) -> Callable[[], object]:
    return lambda: query(whole)


def _inputs(runs: list[pa.RecordBatch]) -> list[RunInput]:
    return [RunInput(_cut(batch), 0, age) for age, batch in enumerate(runs)]


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (batch.slice(at, BATCH_ROWS) for at in range(0, batch.num_rows, BATCH_ROWS))


def _drain(batches: Iterator[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _write(rows: pa.Table, path: str) -> None:
    sample = rows.slice(0, settings.ROW_GROUP_ROWS)
    delta = [name for name in ("_SEQUENCE_NUMBER", "_KEY_id", "id") if rows.schema.field(name).type == pa.int64()]
    sink = settings.ParquetSink(
        LocalFileIO(), path, sample, codec="zstd", level=1, dictionary=["_VALUE_KIND"], delta=delta
    )
    for start in range(0, rows.num_rows, settings.ROW_GROUP_ROWS):
        sink.write(rows.slice(start, settings.ROW_GROUP_ROWS))
    sink.close()


def _read(path: str) -> Iterator[pa.RecordBatch]:
    source = settings.ParquetSource(LocalFileIO(), path, size=None, rows=None)
    try:
        yield from source.batches(source.schema.names, BATCH_ROWS)
    finally:
        source.close()


# -- rows -------------------------------------------------------------------------------------------------------------


def _keys(total: int) -> Iterator[np.ndarray]:
    random, known, each = np.random.default_rng(1), 0, total // RUNS
    for number in range(RUNS):
        fresh = each if number == 0 else each - int(each * UPDATED)
        old = random.choice(known, each - fresh, replace=False) if number else np.empty(0, np.int64)
        yield np.sort(np.concatenate([np.arange(known, known + fresh), old])).astype(np.int64)
        known += fresh


def _runs(total: int, nulls: float) -> list[pa.RecordBatch]:
    random, sequence, runs = np.random.default_rng(2), 0, []
    for keys in _keys(total):
        count = len(keys)

        def mask(size: int = count) -> np.ndarray | None:
            return random.random(size) < nulls if nulls else None

        columns = _system(keys, sequence)
        columns |= {f"n{i}": pa.array(random.integers(0, 2**40, count), mask=mask()) for i in range(4)}
        columns |= {f"x{i}": pa.array(random.random(count), mask=mask()) for i in range(2)}
        for i in range(2):
            texts = text_column(random.integers(0, 2**62, count))
            hidden = mask()
            columns[f"s{i}"] = texts if hidden is None else texts.take(pa.array(np.arange(count), mask=hidden))
        runs.append(pa.RecordBatch.from_pydict(columns))
        sequence += count
    return runs


def _wide_runs(total: int) -> list[pa.RecordBatch]:
    """Return runs in which each writer fills ten of the fifty columns; the other forty columns are null."""
    random, sequence, runs = np.random.default_rng(3), 0, []
    for writer, keys in enumerate(_keys(total)):
        columns = _system(keys, sequence)
        for i in range(49):
            mine = i // 10 == writer
            columns[f"c{i}"] = (
                pa.array(random.integers(0, 2**40, len(keys))) if mine else pa.nulls(len(keys), pa.int64())
            )
        runs.append(pa.RecordBatch.from_pydict(columns))
        sequence += len(keys)
    return runs


def _system(keys: np.ndarray, sequence: int) -> dict[str, pa.Array]:
    count = len(keys)
    numbers, kinds = pa.array(np.arange(sequence, sequence + count)), pa.array(np.zeros(count, np.int8))
    return {"_KEY_id": pa.array(keys), "_SEQUENCE_NUMBER": numbers, "_VALUE_KIND": kinds, "id": pa.array(keys)}


def _with_text_key(runs: list[pa.RecordBatch], *, vary: bool) -> list[pa.RecordBatch]:
    """Return runs with text keys: eight letters and the number of the key in 16 digits.

    If lengths ``vary``, the digits have no leading zeros and 0 to 9 letters. All texts differ, because a sorted run
    holds a key once.
    """
    changed = []
    for batch in runs:
        number = np.asarray(batch.column("id"))
        digits = ((number[:, None] // 10 ** np.arange(15, -1, -1, dtype=np.int64)) % 10 + 48).astype(np.uint8)
        padded = np.hstack([np.full((len(number), 8), 107, np.uint8), digits])
        ends = np.arange(1, len(number) + 1, dtype=np.int64) * 24
        if vary:
            first = 16 - np.char.str_len(number.astype("U16"))
            place, letters = np.arange(33)[None, :], number % 10
            padded = np.hstack([padded, np.full((len(number), 9), 122, np.uint8)])
            keep = (place < 8) | ((place >= 8 + first[:, None]) & (place < 24 + letters[:, None]))
            data, ends = padded[keep], np.cumsum(keep.sum(axis=1))
        else:
            data = padded.reshape(-1)
        offsets = np.concatenate((np.zeros(1, np.int64), ends)).astype(np.int32)
        key = pa.StringArray.from_buffers(len(number), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data)))
        order = pa.compute.sort_indices(key)
        names = batch.schema.names
        columns = [key if name in {"_KEY_id", "id"} else batch.column(name) for name in names]
        changed.append(pa.RecordBatch.from_arrays(columns, names=names).take(order))
    return changed


# -- the same answers elsewhere -----------------------------------------------------------------------------------------


def _polars_last(rows: pa.Table) -> object:
    import polars

    return polars.from_arrow(rows).sort("_SEQUENCE_NUMBER").unique("id", keep="last").sort("id")


def _polars_update(rows: pa.Table) -> object:
    import polars

    frame = polars.from_arrow(rows).sort("_SEQUENCE_NUMBER")
    return frame.group_by("id").agg(polars.col(n).drop_nulls().last() for n in _VALUES).sort("id")


def _polars_sums(rows: pa.Table) -> object:
    import polars

    frame = polars.from_arrow(rows)
    sums = [polars.col(name).sum() for name in ("n0", "n3", "x0")]
    extremes = [polars.col("n1").max(), polars.col("n2").min(), polars.col("x1").max()]
    last = [polars.col(name).sort_by("_SEQUENCE_NUMBER").last() for name in ("s0", "s1")]
    return frame.group_by("id").agg(*sums, *extremes, *last).sort("id")


def _duckdb(query: str) -> Callable[[pa.Table], object]:
    def ask(rows: pa.Table) -> object:
        import duckdb

        with duckdb.connect() as connection:
            connection.execute("SET threads = 1; SET enable_progress_bar = false")
            connection.register("versions", rows)
            return connection.execute(query).to_arrow_table()

    return ask


_duckdb_last = _duckdb(
    'SELECT * FROM versions QUALIFY row_number() OVER (PARTITION BY id ORDER BY "_SEQUENCE_NUMBER" DESC) = 1 ORDER BY id'
)
_LASTS = ", ".join(f'arg_max({n}, "_SEQUENCE_NUMBER") FILTER ({n} IS NOT NULL) AS {n}' for n in _VALUES)
_duckdb_update = _duckdb(f"SELECT id, {_LASTS} FROM versions GROUP BY id ORDER BY id")
_duckdb_sums = _duckdb(
    'SELECT id, sum(n0), max(n1), min(n2), sum(n3), sum(x0), max(x1), arg_max(s0, "_SEQUENCE_NUMBER"), '
    'arg_max(s1, "_SEQUENCE_NUMBER") FROM versions GROUP BY id ORDER BY id'
)


# -- memory -----------------------------------------------------------------------------------------------------------


def _memory(total: int) -> list[Result]:
    """Measure the maximum Arrow bytes of merging runs from files, for a quarter of the rows and for all rows."""
    program = "import sys; from bench.merge import peak; print(peak(int(sys.argv[1])))"
    peaks = [int(in_own_process(program, str(rows))) for rows in (total // 4, total)]
    note = f"peak {peaks[1] / 2**20:.0f} MiB of Arrow memory at {total:,} rows, {peaks[0] / 2**20:.0f} at a quarter"
    return [Result("merge", "memory at 4 x the rows", peaks[1] / peaks[0], "x", 1.2, note=note).judged()]


def peak(total: int) -> int:
    """Return the maximum Arrow bytes while files of ``total`` rows are merged and the result is dropped.

    No other work may run in this process.
    """
    fields = tuple(
        DataField(i, n, parse(k)) for i, (n, k) in enumerate([("id", "BIGINT"), *((n, _type(n)) for n in _VALUES)])
    )
    function = merge_function(TableSchema(0, fields, len(fields) - 1, primary_keys=("id",)), GROUPS, "bench.t")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"run-{number}.parquet" for number in range(RUNS)]
        for path, batch in zip(paths, _runs(total, 0.3), strict=True):
            _write(pa.Table.from_batches([batch]), str(path))
        pool = pa.default_memory_pool()
        before, most = pool.bytes_allocated(), 0
        for _ in merge_streams([RunInput(_read(str(path)), 0, age) for age, path in enumerate(paths)], function):
            most = max(most, pool.bytes_allocated() - before)
    return most
