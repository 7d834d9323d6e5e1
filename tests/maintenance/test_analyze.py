"""ANALYZE: rows, sizes and columns, counted in one pass and named by a snapshot that changes no row."""

from __future__ import annotations

import datetime as dt
import math
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.clock import FixedClock
from lsm_core.errors import ColumnNotFound, CommitUnknown, DredgeError, PlanStale, UnsupportedFeature
from lsm_core.maintenance.actions.analyze import DistinctValues
from lsm_core.merge.digest import value_hashes
from lsm_core.metadata import statistics
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.maintenance.tables import NOW, content, keyed, rows, with_io

WIDE = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        *[("b", pa.bool_()), ("t", pa.int8()), ("f", pa.float32()), ("d", pa.float64()), ("m", pa.decimal128(10, 2))],
        *[
            ("day", pa.date32()),
            ("at", pa.timestamp("us")),
            ("s", pa.string()),
            ("raw", pa.binary()),
            ("l", pa.list_(pa.int32())),
        ],
    ]
)


def wide(tmp_path: Path) -> Table:
    catalog = Catalog(tmp_path / "wh", clock=f"fixed:{NOW}")
    catalog.create_database("db")
    table = catalog.create_table("db.w", Schema(WIDE, ["k"], [], {"bucket": "1"}))
    values: dict[str, list[Any]] = {
        "k": [1, 2, 3, 4],
        "b": [True, False, None, True],
        "t": [-3, 5, 5, None],
        "f": [1.5, math.nan, -0.0, 0.0],
        "d": [None, None, None, None],
        "m": [Decimal("1.20"), Decimal("-3.00"), None, Decimal("1.20")],
        "day": [dt.date(1970, 1, 2), dt.date(2024, 1, 1), None, None],
        "at": [dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 1, 1, 12, 0, 0, 5), None, None],
        "s": ["ä", "bcd", "", None],
        "raw": [b"\x00", b"abc", None, None],
        "l": [[1], [], None, [2]],
    }
    table.write(pa.table(values, WIDE))
    return table


def found(table: Table) -> Any:
    latest = table.latest_snapshot()
    assert latest is not None
    return statistics.read_statistics(table.store, latest)


def test_all_columns_but_nested_ones_are_told_of(tmp_path: Path) -> None:
    table = wide(tmp_path)
    before = content(table)
    report = table.analyze()
    assert (report.base_snapshot, report.snapshot_id, report.rows) == (1, 2, 4)
    assert [column.subject for column in report.declined] == ["column l"]
    latest = table.latest_snapshot()
    assert latest is not None and (latest.commit_kind.value, latest.delta_record_count) == ("ANALYZE", 0)
    assert repr(content(table)) == repr(before)  # NaN is not NaN
    result = found(table)
    assert (result.snapshot_id, result.schema_id, result.merged_record_count) == (1, 0, 4)
    assert result.merged_record_size == report.size > 0
    seen = {
        name: (
            column.distinct_count,
            column.minimum,
            column.maximum,
            column.null_count,
            column.average_length,
            column.maximum_length,
        )
        for name, column in result.columns.items()
    }
    assert seen == {
        "k": (4, "1", "4", 0, 8, 8),
        "b": (2, "false", "true", 1, 1, 1),
        "t": (2, "-3", "5", 1, 1, 1),
        "f": (3, "0.0", "NaN", 0, 4, 4),
        "d": (0, None, None, 4, 8, 8),
        "m": (2, "-3.00", "1.20", 1, 8, 8),
        "day": (2, "1", "19723", 2, 4, 4),
        "at": (2, "2024-01-01 12:00:00.000000", "2024-01-01 12:00:00.000005", 2, 8, 8),
        "s": (3, None, None, 1, 2, 3),
        "raw": (2, None, None, 2, 2, 3),
    }
    assert table.write(pa.table({**{name: [None] for name in WIDE.names}, "k": [9]}, WIDE)) == 3
    assert found(table) == result  # the next snapshot still names them
    Catalog(tmp_path / "wh").alter_table("db.w", [SchemaChange.add_column("z", pa.int32())])
    wider = Catalog(tmp_path / "wh").table("db.w")
    wider.write(pa.table({"k": [10]}, WIDE.empty_table().select(["k"]).schema))
    assert found(wider) is None
    assert wider.analyze(columns=["z"]).columns == ("z",)
    assert found(wider).schema_id == 1


def test_merged_rows_are_counted_and_size_is_their_share(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(3):
        table.write(rows(range(10), v=i))
    report = table.analyze(columns=[])
    size = sum(
        file["file_size_in_bytes"] for file in Catalog(tmp_path / "wh").table("db.t$files").to_arrow().to_pylist()
    )
    assert (report.rows, report.size, report.columns) == (10, size * 10 // 30, ())
    assert found(table).columns == {}


def test_what_cannot_be_analyzed(tmp_path: Path) -> None:
    table = wide(tmp_path)
    with pytest.raises(ColumnNotFound):
        table.analyze(columns=["nothing"])
    with pytest.raises(UnsupportedFeature, match="'l'"):
        table.analyze(columns=["l"])
    assert len(table.snapshots()) == 1
    empty = keyed(tmp_path / "empty")
    assert empty.analyze().snapshot_id is None and empty.snapshots() == []


def test_a_plan_is_stale_after_a_rollback_although_its_snapshot_id_exists_again(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(10)))
    table.write(rows(range(20)))
    plan = table.plan_maintenance("analyze")
    assert plan.base_snapshot == 2
    table.rollback_to(1)
    later = Catalog(tmp_path / "wh", clock=FixedClock(NOW + 1)).table("db.t")
    later.write(rows(range(15)))
    with pytest.raises(PlanStale, match="snapshot 2 is another one since the table was rolled back"):
        later.apply(plan)
    assert later.apply(later.plan_maintenance("analyze")).rows == 15


def test_distinct_values_are_exact_up_to_a_limit_and_near_beyond() -> None:
    few, many = DistinctValues(), DistinctValues()
    for start in range(0, 60_000, 7_000):
        few.add(value_hashes(pa.array(range(start // 2, start // 2 + 7_000))))
    assert few.count() == 35_000
    for start in range(0, 1_000_000, 50_000):
        many.add(value_hashes(pa.array(np.arange(start, start + 50_000) % 700_000).cast(pa.string())))
    assert abs(many.count() / 700_000 - 1) < 0.02


def test_analyze_broken_at_every_step_leaves_no_file_that_nobody_names(tmp_path: Path) -> None:
    keyed(tmp_path / "template").write(rows(range(3)))

    def fresh(name: str) -> Table:
        shutil.copytree(tmp_path / "template" / "wh", tmp_path / name / "wh")
        return Catalog(tmp_path / name / "wh", clock=f"fixed:{NOW}").table("db.t")

    counting = FaultyFileIO(LocalFileIO())
    with_io(fresh("count"), counting).analyze()
    before = content(fresh("probe"))
    for step, (name, _) in enumerate(counting.log, 1):
        for mode in ("before", "after") if name in {"write_exclusive", "overwrite", "create", "close"} else ():
            table, failed = fresh(f"{step}-{mode}"), None
            try:
                with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)).analyze()
            except (OSError, DredgeError) as error:
                failed = error
            latest = table.latest_snapshot()
            assert latest is not None and content(table) == before
            files = {path.name for path in (Path(table.store.root) / "statistics").glob("*")}
            if failed is not None and mode == "before" and not isinstance(failed, CommitUnknown):
                assert files <= {latest.statistics}, (step, name)
            assert table.analyze().rows == 3
            assert found(table).merged_record_count == 3
            shutil.rmtree(tmp_path / f"{step}-{mode}")
