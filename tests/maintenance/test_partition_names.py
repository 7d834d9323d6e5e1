"""Partitions of floating-point numbers whose directories a JDK of 19 or newer named: every verb works there and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.metadata import manifests, snapshots
from tests.support.references import file_names

OLD, NEW, PLAIN = "p=1.9999999999999998E23", "p=2.0E23", "p=1.5"
COLUMNS = pa.schema([pa.field("p", pa.float64(), nullable=False), pa.field("k", pa.int64(), nullable=False)])
TABLES: dict[str, tuple[list[str], dict[str, str]]] = {
    "keyed": (["p", "k"], {"bucket": "1"}),
    "unaware": ([], {"bucket": "-1"}),
}
LATER = 4_000_000_000_000


def rows(value: float, *keys: int) -> pa.Table:
    return pa.table({"p": [value] * len(keys), "k": list(keys)}, schema=COLUMNS)


def content(table: Table) -> list[tuple[float, int]]:
    found = table.to_arrow()
    return sorted(zip(found["p"].to_pylist(), found["k"].to_pylist(), strict=True))


def files(root: Path, name: str) -> set[str]:
    return {path.name for path in (root / name).rglob("*.parquet")}


def live(table: Table) -> set[str]:
    latest = snapshots.latest(table.store)
    assert latest is not None
    return set(file_names(manifests.live_entries(table.store, latest)))


def listed(root: Path) -> list[Path]:
    """What `$files` tells."""
    return [Path(path) for path in Catalog(root.parent.parent).table("db.t$files").to_arrow()["file_path"].to_pylist()]


def reopened(root: Path) -> Table:
    return Catalog(root.parent.parent, clock=f"fixed:{LATER}").table("db.t")


@pytest.fixture(params=TABLES)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table with rows (2e23, 1), (2e23, 2) and (1.5, 1), its first partition under the newer name."""
    keys, options = TABLES[request.param]
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(COLUMNS, keys, ["p"], {**options, "file.format": "parquet"}))
    table.write(pa.concat_tables([rows(2e23, 1, 2), rows(1.5, 1)]))
    root = tmp_path / "wh" / "db.db" / "t"
    assert (root / OLD).is_dir()
    (root / OLD).rename(root / NEW)
    return root


def settled(root: Path, table: Table) -> None:
    """Expire and sweep all that can go: what lives stays, what does not live is gone, under either name."""
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=LATER)
    table.sweep_trash(now_ms=LATER + 10**10)
    there = files(root, OLD) | files(root, NEW) | files(root, PLAIN)
    assert there == live(table)


def test_rows_are_read_and_written_where_the_partition_is(root: Path) -> None:
    assert content(reopened(root)) == [(1.5, 1), (2e23, 1), (2e23, 2)]
    table = reopened(root)
    table.write(rows(2e23, 3))
    assert not (root / OLD).exists()
    assert len(files(root, NEW)) == 2
    assert content(reopened(root)) == [(1.5, 1), (2e23, 1), (2e23, 2), (2e23, 3)]
    assert {path.relative_to(root).parts[0] for path in listed(root)} == {NEW, PLAIN}
    assert {health.partition_text for health in table.health()} == {OLD, PLAIN}


def test_compaction_expiry_and_sweep_keep_what_lives_and_delete_the_rest(root: Path) -> None:
    table = reopened(root)
    for key in (3, 4, 5, 6, 7):
        table.write(rows(2e23, key))
    before = files(root, NEW)
    table.compact(full=True)
    settled(root, table)
    assert not (root / OLD).exists()
    assert not before & files(root, NEW)
    assert content(reopened(root)) == [(1.5, 1), *((2e23, key) for key in range(1, 8))]


def test_an_overwritten_or_dropped_partition_is_swept_under_the_name_it_has(root: Path) -> None:
    table = reopened(root)
    table.write(rows(2e23, 9), overwrite={"p": 2e23})
    settled(root, table)
    assert content(table) == [(1.5, 1), (2e23, 9)]
    assert len(files(root, NEW)) == 1
    table.drop_partitions([{"p": "2.0E23"}])
    table.write(rows(1.5, 2))
    settled(root, reopened(root))
    assert files(root, NEW) == files(root, OLD) == set()
    assert content(reopened(root)) == [(1.5, 1), (1.5, 2)]


def test_writers_of_both_kinds_in_one_partition_lose_nothing(root: Path) -> None:
    (root / OLD / "bucket-0").mkdir(parents=True)  # where a writer on an older JDK puts its rows
    table = reopened(root)
    table.write(rows(2e23, 3))
    assert len(files(root, OLD)) == len(files(root, NEW)) == 1
    everything = [(1.5, 1), (2e23, 1), (2e23, 2), (2e23, 3)]
    assert content(reopened(root)) == everything
    assert len(listed(root)) == 3
    assert all(path.is_file() for path in listed(root))
    settled(root, table)
    assert content(reopened(root)) == everything
    table = reopened(root)
    table.compact(full=True)
    settled(root, table)
    assert content(reopened(root)) == everything
