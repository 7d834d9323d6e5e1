"""Tables with `sequence.snapshot-ordering`: the row of the later snapshot is the newer one, whatever its sequence number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.errors import InvalidOption, UnsupportedFeature
from lsm_core.metadata import manifests, snapshots

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
ORDERED = {"sequence.snapshot-ordering": "true", "write-only": "true"}


def _create(root: Path, **options: str) -> Table:
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    return catalog.create_table("db.t", Schema(FIELDS, ["k"], [], {"bucket": "1", **ORDERED, **options}))


def _rows(keys: Sequence[int], text: str) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [text] * len(keys)})


def _values(table: Table) -> dict[int, str]:
    return {row["k"]: row["v"] for row in table.refresh().to_arrow().to_pylist()}


def _numbers(table: Table) -> list[tuple[int, int]]:
    store = table.refresh().store
    snapshot = snapshots.latest(store)
    assert snapshot is not None
    entries = manifests.live_entries(store, snapshot)
    return sorted(zip(*(entries.column(f"{end}_sequence_number").to_pylist() for end in ("min", "max")), strict=True))


def _written_late(table: Table) -> None:
    """Commit two writers in the order opposite to their sequence numbers."""
    early, late = table.new_write(), table.refresh().new_write()
    with early, late:
        early.write(_rows([1, 2], "small numbers"))
        late.write(_rows(range(1, 101), "large numbers"))
        table.new_commit().commit(late.prepare_commit())
        table.new_commit().commit(early.prepare_commit())


def test_the_later_snapshot_wins_over_larger_sequence_numbers(tmp_path: Path) -> None:
    table = _create(tmp_path)
    _written_late(table)
    assert _numbers(table) == [(1, 1), (2, 2)]
    assert _values(table)[2] == "small numbers"
    table = table.refresh()
    table.compact(full=True)
    assert _numbers(table) == [(1, 2)]  # each row keeps the id of its snapshot
    assert _values(table) == {1: "small numbers", 2: "small numbers", **dict.fromkeys(range(3, 101), "large numbers")}
    table.refresh().write(_rows([3], "last"))
    assert _values(table)[3] == "last"
    assert [report.text for report in table.refresh().check() if not report.passed and not report.warn] == []


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation"])
def test_the_last_row_of_a_key_wins_within_a_commit_larger_than_the_buffer(tmp_path: Path, engine: str) -> None:
    buffer = {
        "write-buffer-size": "64 kb",
        "write-buffer-spillable": "false",
        "write-buffer-spill.max-disk-size": "1 b",
    }
    function = {"fields.v.aggregate-function": "last_value"} if engine == "aggregation" else {}
    table = _create(tmp_path, **buffer, **function, **{"merge-engine": engine})
    with table.new_write() as writer:
        for version in range(4):
            writer.write(_rows(range(3000), f"version {version} of the row"))
        table.new_commit().commit(writer.prepare_commit())
    assert len(_numbers(table)) == 1
    assert set(_values(table).values()) == {"version 3 of the row"}


def test_an_ordinary_table_keeps_the_larger_sequence_number(tmp_path: Path) -> None:
    table = _create(tmp_path, **{"sequence.snapshot-ordering": "false"})
    _written_late(table)
    assert _values(table)[2] == "large numbers"


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rescale_rollback_and_undo_keep_the_order(tmp_path: Path, vectors: str) -> None:
    table = _create(tmp_path, **{"deletion-vectors.enabled": vectors})
    _written_late(table)
    compaction = table.refresh().compact(full=True)
    before = _values(table)
    table.refresh().undo(compaction.run_id, allow_changes=True)
    table.refresh().compact(full=True)
    assert _values(table) == before
    table.refresh().write(_rows([2, 5], "newest"))
    table.refresh().rollback_to_as_latest(compaction.snapshot_id)
    table.refresh().compact(full=True)
    assert _values(table) == before
    table.refresh().apply(table.refresh().plan_maintenance("rescale", bucket_num=3))
    Catalog(str(tmp_path)).alter_table("db.t", [SchemaChange.set_option("bucket", "3")])
    table.refresh().write(_rows([4], "after"))
    table.refresh().compact(full=True)
    assert _values(table) == {**before, 4: "after"}
    table.refresh().expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**62)
    assert _values(table) == {**before, 4: "after"}


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"write-only": "false"}, "sequence.snapshot-ordering"),
        ({"sequence.field": "v"}, "sequence.snapshot-ordering"),
    ],
)
def test_options_that_paimon_refuses(tmp_path: Path, options: dict[str, str], key: str) -> None:
    with pytest.raises(InvalidOption, match=key):
        _create(tmp_path, **options)


def test_postponed_buckets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match=r"postponed buckets .* with 'sequence\.snapshot-ordering'"):
        _create(tmp_path, bucket="-2")
