"""Tables of three shapes with a history (tags, a branch, expired snapshots), and named operations on these tables.

The fault sweep, the kills at named points and the interleavings use them. An operation that is executed again gives the
same table.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from lsm_core import Catalog, Schema, Table
from lsm_core.clock import FixedClock
from lsm_core.commit import discard_on_failure
from lsm_core.errors import InvalidOption, PlanRefused, SnapshotNotFound, TableExists, TableNotFound
from lsm_core.maintenance import read_trash
from lsm_core.metadata import branches
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FileIO, LocalFileIO

NOW: Final = 1_700_000_000_000
HOUR: Final = 3_600_000
LATER: Final = NOW + 12 * HOUR
FAR: Final = 4_000_000_000_000
"""A time (in the year 2096) at which every file that a test makes is old."""
OLD, NEW = "2023-10-01", "2023-11-14"
FIELDS = pa.schema(
    [pa.field("dt", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)
QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms", "commit.max-retries": "2"}
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Shape:
    """Options and primary key columns of a table."""

    options: dict[str, str]
    keys: tuple[str, ...] = ("dt", "k")


SHAPES: Final = {
    "keyed": Shape({"bucket": "1"}),
    "dynamic": Shape({"bucket": "-1", "dynamic-bucket.target-row-num": "5", "changelog-producer": "input"}),
    "append": Shape({"bucket": "-1", "deletion-vectors.enabled": "true", "compaction.min.file-num": "2"}, ()),
}


def rows(keys: range, value: int, day: str = NEW) -> pa.Table:
    """Return rows whose values identify the write."""
    return pa.table([[day] * len(keys), list(keys), [value + key for key in keys]], schema=FIELDS)


def content(table: Table, **version: Any) -> Rows:
    """Return all rows of a version, sorted; duplicates are kept."""
    return sorted(tuple(row.values()) for row in table.to_arrow(**version).to_pylist())


def dev_of(table: Table, name: str = "dev") -> Table:
    """Open a branch of the table."""
    return Table(branches.open_branch(table.store, name))


def fill(warehouse: Path, shape: Shape) -> Table:
    """Create a table with snapshots 3 to 6 (a delete, a compaction, two writes), two tags and a branch.

    The tag "held" keeps snapshot 2, which has expired, and the tag "kept" keeps snapshot 4. Files of expired snapshots
    are deleted, so the table has no unreferenced file.
    """
    catalog = Catalog(str(warehouse), clock=FixedClock(NOW))
    catalog.create_database("db")
    schema = Schema(FIELDS, list(shape.keys), ["dt"], {**QUICK, **shape.options})
    table = catalog.create_table("db.t", schema)
    table.write(pa.concat_tables([rows(range(6), 0), rows(range(4), 0, OLD)]))
    table.write(rows(range(3, 9), 100))
    table.create_tag("held", 2)
    table.delete([("k", "in", [1, 4])])
    table.compact(full=True)
    table.create_tag("kept", 4, time_retained="1 h")
    dev = table.create_branch("dev", from_tag="held")
    dev.write(rows(range(7, 12), 500))
    table.write(rows(range(8, 12), 200))
    table.write(rows(range(2, 4), 300))
    clock = table.store.clock
    assert isinstance(clock, FixedClock)
    clock.advance(2 * HOUR)
    table.expire_snapshots(retain_max=4, retain_min=4)
    clock.advance(2 * HOUR)
    table.sweep_trash()
    assert [snapshot.id for snapshot in table.snapshots()] == [3, 4, 5, 6]
    return table


def opened(
    warehouse: str, at_ms: int = LATER, file_io: FileIO | None = None, options: dict[str, str] | None = None
) -> Table:
    """Open table db.t without cached state, with a clock that is fixed at ``at_ms``."""
    store = TableStore.open(file_io or LocalFileIO(), f"{warehouse}/db.db/t", "db.t", FixedClock(at_ms), options or {})
    return Table(store)


# -- what is done to it --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Act:
    """Operation on a table of :func:`fill`. If the operation is done, executing it again changes nothing.

    Attributes:
        run: the operation.
        is_done: returns whether the operation is done.
        prepare: earlier operation without faults.
        options: dynamic options of the table.
        at_ms: time of the operation, epoch ms.
        least: the operation takes more I/O steps than this number.
    """

    run: Callable[[Table], object]
    is_done: Callable[[Table], bool]
    prepare: Callable[[Table], object] = lambda _: None
    options: dict[str, str] = field(default_factory=dict)
    at_ms: int = LATER
    least: int = 5


def ids(table: Table) -> list[int]:
    """Return the ids of the snapshots."""
    return [snapshot.id for snapshot in table.snapshots()]


def newest(table: Table) -> Any:
    """Return the newest snapshot."""
    found = table.latest_snapshot()
    assert found is not None
    return found


_JOB: Final = 7


def _written(table: Table) -> bool:
    return any(snapshot.commit_user == "job" and snapshot.commit_identifier == _JOB for snapshot in table.snapshots())


def write(table: Table) -> None:
    """Make one commit of a stream job, unless an earlier run of the job made the commit."""
    if _written(table):
        return
    commit = table.new_stream_commit("job")
    with table.new_stream_write("job") as writer:
        writer.write(rows(range(5, 14), 1000))
        writer.write(rows(range(2), 1000, OLD))
        messages = writer.prepare_commit(wait_compaction=True, commit_identifier=_JOB)
        with discard_on_failure(table.store, messages):
            commit.filter_and_commit({_JOB: messages})


def _sweep(table: Table) -> object:
    return table.sweep_trash(now_ms=table.store.clock.now_ms() + 48 * HOUR)


def _restore(action: str) -> Callable[[Table], None]:
    def restore(table: Table) -> None:
        for record in read_trash(table.store).records:
            if record.action == action:
                table.restore(record.trash_id)

    return restore


_UUID: Final = "4f5d7a0e-5b1c-4c5f-9d3a-0123456789ab"
DIRT: Final = (
    f"dt={NEW}/bucket-0/data-{_UUID}-0.parquet",
    f"dt={NEW}/bucket-0/changelog-{_UUID}-1.parquet",
    f"dt={OLD}/bucket-0/data-{_UUID}-2.parquet",
    f"manifest/manifest-{_UUID}-0",
    f"manifest/manifest-list-{_UUID}-0",
    f"manifest/index-manifest-{_UUID}-0",
    f"index/index-{_UUID}-0",
    f"statistics/stat-{_UUID}-0",
    f"snapshot/.snapshot-9.{_UUID}.tmp",
)
"""Unreferenced files of every kind that an interrupted writer may leave."""


def plant(table: Table) -> None:
    """Create the unreferenced files `DIRT`, on a disk with a modification time before the table was created."""
    for name in DIRT:
        path = f"{table.store.root}/{name}"
        table.store.file_io.overwrite(path, b"dirt")
        if isinstance(table.store.file_io, LocalFileIO):
            os.utime(path, (NOW // 1000 - 10 * 24 * 3600,) * 2)


def _remove_orphans(table: Table) -> object:
    return table.remove_orphan_files(older_than_ms=FAR, max_share=100)


def _no_orphans(table: Table) -> bool:
    return not table.plan_maintenance("orphans", older_than_ms=FAR, max_share=100).items


def _create_tag(table: Table) -> None:
    try:
        table.create_tag("made", 5, time_retained="1 d")
    except InvalidOption:
        assert table.tags()["made"].snapshot.id == 5


def _delete_tag(table: Table) -> None:
    with suppress(SnapshotNotFound):
        table.delete_tag("held")


def _rename_tag(table: Table) -> None:
    try:
        table.rename_tag("held", "other")
    except SnapshotNotFound:
        assert "other" in table.tags()


def _create_branch(table: Table) -> None:
    with suppress(TableExists):
        table.create_branch("made", from_tag="held")


def _delete_branch(table: Table) -> None:
    with suppress(TableNotFound):
        table.delete_branch("dev")


def _planned_rollback(table: Table) -> None:
    table.save_plan(table.plan_maintenance("rollback", tag="kept"))


def _rollback(table: Table) -> None:
    """Apply the saved rollback plan that was made before the first try."""
    table.apply(table.load_plan(table.saved_plans()[0]))


def _last_compaction(table: Table) -> str:
    return next(entry.run_id for entry in reversed(table.ledger()) if entry.action == "compact")


def _undo(table: Table) -> None:
    try:
        table.undo(_last_compaction(table))
    except PlanRefused as refused:
        if "already-undone" not in str(refused):
            raise


def _undone(table: Table) -> bool:
    return (newest(table).properties or {}).get("dredge.undo-of") == _last_compaction(table)


def _expire_partitions(table: Table) -> object:
    return table.expire_partitions(older_than_ms=NOW - 20 * 24 * HOUR, strategy="values-time")


DIRECT = {"dredge.delete-mode": "direct"}


def _expire(table: Table) -> object:
    return table.expire_snapshots(retain_max=1, retain_min=1)


ACTS: Final = {
    "write": Act(write, _written),
    "compact": Act(lambda t: t.compact(full=True), lambda t: newest(t).commit_kind == "COMPACT"),
    "expire": Act(_expire, lambda t: len(ids(t)) == 1),
    "expire at once": Act(_expire, lambda t: len(ids(t)) == 1, options=DIRECT),
    "sweep": Act(_sweep, lambda t: not read_trash(t.store).records, _expire),
    "restore": Act(_restore("expire_snapshots"), lambda t: ids(t) == [3, 4, 5, 6], _expire),
    "orphans": Act(_remove_orphans, _no_orphans, plant, at_ms=FAR),
    "orphans at once": Act(_remove_orphans, _no_orphans, plant, DIRECT, FAR),
    "create tag": Act(_create_tag, lambda t: "made" in t.tags()),
    "move tag": Act(lambda t: t.create_tag("held", 6, replace=True), lambda t: t.tags()["held"].snapshot.id == 6),
    "rename tag": Act(_rename_tag, lambda t: set(t.tags()) == {"other", "kept"}),
    "delete tag": Act(_delete_tag, lambda t: "held" not in t.tags()),
    "expire tags": Act(lambda t: t.expire_tags(), lambda t: "kept" not in t.tags()),
    "create branch": Act(_create_branch, lambda t: content(dev_of(t, "made")) == content(t, tag="held")),
    "delete branch": Act(_delete_branch, lambda t: t.branches() == []),
    "restore a branch": Act(_restore("delete_branch"), lambda t: t.branches() == ["dev"], _delete_branch),
    "fast-forward": Act(lambda t: t.fast_forward("dev"), lambda t: content(t) == content(dev_of(t))),
    "undo a fast-forward": Act(
        _restore("fast_forward"), lambda t: ids(t) == [3, 4, 5, 6], lambda t: t.fast_forward("dev")
    ),
    "roll back": Act(_rollback, lambda t: ids(t) == [3, 4], _planned_rollback),
    "undo a rollback": Act(_restore("rollback"), lambda t: ids(t) == [3, 4, 5, 6], lambda t: t.rollback_to("kept")),
    "undo": Act(_undo, _undone, lambda t: t.compact(full=True)),
    "expire partitions": Act(_expire_partitions, lambda t: not content_of(t, OLD)),
}


def content_of(table: Table, day: str) -> Rows:
    """Return the rows of one partition."""
    return content(table, filter=[("dt", "=", day)])


__all__ = ["ACTS", "DIRT", "FAR", "LATER", "SHAPES", "Act", "content", "dev_of", "fill", "ids", "newest", "opened"]
