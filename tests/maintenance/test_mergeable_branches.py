"""Append tables keep a history of appends for as long as Paimon could merge their branches (`merge_branch`)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core.errors import InvalidOption, UnsupportedFeature
from lsm_core.table import Catalog, Schema, Table

_FIELDS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def _append_table(tmp_path: Path, commits: int = 6, **options: str) -> Table:
    catalog = Catalog(tmp_path / "warehouse")
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(_FIELDS, options={"write-only": "true", **options}))
    for number in range(commits):
        table.write(pa.table({"id": [number], "v": ["x"]}, schema=_FIELDS))
    return table


def _ids(table: Table) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


def test_a_table_with_mergeable_branches_is_not_compacted_before_the_branches_are_deleted(tmp_path: Path) -> None:
    table = _append_table(tmp_path)
    table.create_tag("t1", 2)
    table.create_branch("dev", "t1")
    with pytest.raises(UnsupportedFeature, match="branches \\(dev\\) can still be merged"):
        table.compact(full=True)
    table.delete_branch("dev")
    assert table.compact(full=True).snapshot_id
    assert _ids(table) == list(range(6))


def test_the_option_allows_the_compaction_that_paimon_makes(tmp_path: Path) -> None:
    table = _append_table(tmp_path, **{"dredge.compaction.mergeable-branches": "as-paimon"})
    table.create_branch("dev")
    assert table.compact(full=True).snapshot_id


def test_a_history_that_cannot_be_merged_any_more_is_compacted(tmp_path: Path) -> None:
    table = _append_table(tmp_path)
    table.compact(full=True)
    table.create_branch("dev")
    for number in range(6, 12):
        table.write(pa.table({"id": [number], "v": ["x"]}, schema=_FIELDS))
    assert table.compact(full=True).snapshot_id
    assert _ids(table) == list(range(12))


def test_a_table_that_merges_branches_accepts_only_appends(tmp_path: Path) -> None:
    table = _append_table(tmp_path, **{"branch-merge.enabled": "true"})
    before = sorted(path.name for path in Path(table.store.root).rglob("*.parquet"))
    with pytest.raises(UnsupportedFeature, match=r"branch-merge\.enabled"):
        table.compact(full=True)
    with pytest.raises(UnsupportedFeature, match=r"branch-merge\.enabled"):
        table.write(pa.table({"id": [9], "v": ["y"]}, schema=_FIELDS), overwrite=True)
    with pytest.raises(UnsupportedFeature, match=r"branch-merge\.enabled"):
        table.delete("id = 3")
    assert _ids(table) == list(range(6))
    assert table.latest_snapshot().id == 6
    assert sorted(path.name for path in Path(table.store.root).rglob("*.parquet")) == before


def test_writers_that_maintain_their_table_leave_it_alone(tmp_path: Path) -> None:
    table = _append_table(tmp_path, commits=8, **{"branch-merge.enabled": "true", "write-only": "false"})
    assert {snapshot.commit_kind.value for snapshot in table.snapshots()} == {"APPEND"}
    assert _ids(table) == list(range(8))


@pytest.mark.parametrize("options", [{"deletion-vectors.enabled": "true"}, {}])
def test_unfit_tables_cannot_be_created(tmp_path: Path, options: dict[str, str]) -> None:
    catalog = Catalog(tmp_path / "warehouse")
    catalog.create_database("db")
    keys = [] if options else ["id"]
    fields = _FIELDS if options else pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    with pytest.raises(InvalidOption, match=r"branch-merge\.enabled"):
        catalog.create_table(
            "db.t", Schema(fields, primary_keys=keys, options={"branch-merge.enabled": "true", **options})
        )
