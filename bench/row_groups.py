"""Copies of row groups against decoding and encoding them, and reading the footer of a wide file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import rows as rows_of
from bench.harness import Result, Timing, alternate
from lsm_core.files.formats.parquet import ROW_GROUP_ROWS, ParquetSink, ParquetSource
from lsm_core.files.row_group_copier import RowGroupCopier, require_copied
from lsm_core.files.row_groups import open_groups
from lsm_core.storage import LocalFileIO

ROWS = 8 * ROW_GROUP_ROWS
_GROUPS, _COLUMNS = 32, 50
_IO = LocalFileIO()


def run(rows: int | None, rounds: int) -> list[Result]:
    """Return megabytes of file per second of copies, with and without proof, and of decoding and encoding.

    Args:
        rows: rows of the file, or None for `ROWS`.
        rounds: rounds of each subject.
    """
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        source, target = str(Path(folder) / "source.parquet"), str(Path(folder) / "target.parquet")
        table = rows_of(np.arange(rows or ROWS), 1)
        sink = _sink(source, table)
        for start in range(0, table.num_rows, ROW_GROUP_ROWS):
            sink.write(table.slice(start, ROW_GROUP_ROWS))
        size, _ = sink.close()
        wide = str(Path(folder) / "wide.parquet")
        pq.write_table(_wide_table(), wide, row_group_size=100, write_page_index=True)

        def copy(*, proven: bool) -> None:
            groups = open_groups(_IO, source)
            with _IO.open_input(source) as stored, _IO.open_output(target) as output:
                copier = RowGroupCopier(output, target)
                copier.copy(stored, groups, range(len(groups.group_rows)))
                copier.close()
                output.close()
            if proven:
                require_copied(_IO, target, copier.copied)

        def encode() -> None:
            stored = ParquetSource(_IO, source, size=None, rows=None)
            out = _sink(target, table)
            for number in range(len(stored.group_rows)):
                batches = list(stored.batches(table.column_names, ROW_GROUP_ROWS, [number]))
                out.write(pa.Table.from_batches(batches).cast(table.schema))
            out.close()
            stored.close()

        subjects: dict[str, Callable[[], None]] = {
            "copied": lambda: copy(proven=False),
            "copied and compared": lambda: copy(proven=True),
            "decoded and encoded": encode,
        }
        times = alternate({name: _then_deleted(act, target) for name, act in subjects.items()}, rounds)
        footer = alternate({"footer": lambda: open_groups(_IO, wide)}, rounds)["footer"]
    results = [_rate(name, timing, size) for name, timing in times.items()]
    name = f"footer of {_GROUPS} row groups of {_COLUMNS} columns, read and checked"
    return [*results, Result("row-groups", name, footer.median, "s", 0.1).judged()]


def _sink(path: str, table: pa.Table) -> ParquetSink:
    return ParquetSink(_IO, path, table, codec="zstd", level=1, delta=["id"])


def _wide_table() -> pa.Table:
    random = np.random.default_rng(1)
    count = _GROUPS * 100
    return pa.table({f"c{i}": pa.array(random.integers(0, 1 << 40, count)) for i in range(_COLUMNS)})


def _then_deleted(act: Callable[[], None], path: str) -> Callable[[], None]:
    def work() -> None:
        act()
        Path(path).unlink()

    return work


def _rate(name: str, timing: Timing, size: int) -> Result:
    rates = [size / 1e6 / seconds for seconds in timing.seconds]
    return Result("row-groups", name, size / 1e6 / timing.median, "MB/s", None, "higher", min(rates), max(rates))
