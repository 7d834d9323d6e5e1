"""Rescale: a partition's rows in another number of buckets, the same rows, or nothing at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.commit import Committer
from lsm_core.errors import (
    ColumnNotFound,
    CommitConflict,
    InvalidOption,
    PlanStale,
    UnsupportedFeature,
    VerificationFailed,
    WriterStale,
)
from lsm_core.format import hashing
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import MaintenancePlan, RescaleReport
from lsm_core.maintenance.actions import rescale
from lsm_core.metadata import manifests, snapshots
from lsm_core.write import bucket
from tests.maintenance.tables import NOW, catalog, content, keyed, rows
from tests.support.samples import one_in
from tests.support.stores import data_files_on_disk, live_files


def totals(table: Table) -> dict[bytes, set[int]]:
    """Recorded numbers of buckets by partition."""
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    entries = manifests.live_entries(table.store, snapshot)
    found: dict[bytes, set[int]] = {}
    for partition, total in zip(entries["partition"].to_pylist(), entries["total_buckets"].to_pylist(), strict=True):
        found.setdefault(partition, set()).add(total)
    return found


def altered(tmp_path: Path, buckets: int) -> Table:
    made: Catalog = catalog(tmp_path)
    made.alter_table("db.t", [SchemaChange.set_option("bucket", str(buckets))])
    return made.table("db.t")


def test_all_partitions_follow_the_altered_option_and_can_be_written_again(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True)
    for dt in ("a", "b"):
        table.write(rows(range(40), dt=dt))
        table.write(rows(range(20, 60), v=7, dt=dt))
    table.write(rows([1, 2], dt="b"), row_kinds=pa.array(["-D", "-D"]))
    before = content(table)
    table = altered(tmp_path, 3)
    with pytest.raises(
        WriterStale, match=r"db\.t: partition dt=a has 1 buckets, the option 'bucket' is 3: rescale or over"
    ):
        table.write(rows([99], dt="a"))
    plan = table.plan_maintenance("rescale")
    assert [(item.partition_text, item.buckets_before, item.buckets_after) for item in plan.items] == [
        ("dt=a", 1, 3),
        ("dt=b", 1, 3),
    ]
    assert MaintenancePlan.from_json(plan.to_json()) == plan
    report = table.apply(plan, approved_by="me")
    assert isinstance(report, RescaleReport)
    assert (report.partitions, report.rows_in, report.rows_out) == (("dt=a", "dt=b"), 162, 118)
    assert report.warnings == ()
    latest = snapshots.latest(table.store)
    assert latest is not None
    assert (latest.id, latest.commit_kind, latest.total_record_count) == (
        report.snapshot_id,
        CommitKind.OVERWRITE,
        118,
    )
    assert content(table) == before
    assert set().union(*totals(table).values()) == {3}
    assert {file.level for files in live_files(table.store).values() for file in files} == {5}
    assert len(live_files(table.store)) == 6
    assert [(entry.action, entry.snapshot_id, entry.approved_by) for entry in table.ledger()] == [
        ("rescale", report.snapshot_id, "me")
    ]
    table.write(rows([1, 99], v=3, dt="a"))
    table.compact(full=True)
    assert len(content(table)) == len(before) + 1
    again = table.plan_maintenance("rescale")
    assert again.items == ()
    assert [declined.reason for declined in again.declined] == ["same-buckets", "same-buckets"]


def test_chosen_partitions_take_a_number_of_their_own_and_the_option_stays(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True, bucket="2")
    for dt in ("a", "b"):
        table.write(rows(range(30), dt=dt))
    before = content(table)
    plan = table.plan_maintenance("rescale", bucket_num=1, partitions=[{"dt": "b"}])
    assert "writers refuse" in plan.items[0].reason
    report = table.apply(plan)
    assert isinstance(report, RescaleReport)
    (warning,) = report.warnings
    assert warning.startswith(
        "the option 'bucket' of table db.t stays 2: writers refuse the rescaled partitions until "
    )
    assert "set_option('bucket', '1')" in warning
    assert content(table) == before
    assert sorted(map(sorted, totals(table).values())) == [[1], [2]]
    assert table.store.refresh().options.bucket == 2
    table.write(rows([5], dt="a"))
    with pytest.raises(WriterStale):
        table.write(rows([5], dt="b"))
    table.apply(table.plan_maintenance("rescale", partitions=[{"dt": "b"}]))  # back to the table's number
    table.write(rows([5], dt="b"))


@pytest.mark.parametrize(
    "options",
    one_in(
        3,
        [
            {"merge-engine": "partial-update", "fields.v.sequence-group": "s"},
            {
                "merge-engine": "aggregation",
                "fields.v.aggregate-function": "sum",
                "fields.s.aggregate-function": "listagg",
            },
            {"merge-engine": "aggregation", "fields.v.aggregate-function": "count"},
            {"merge-engine": "first-row"},
            {"sequence.field": "v"},
            {"fields.s.default-value": "unused"},
        ],
        1,
    ),
    ids=lambda options: " ".join(options.values()),
)
def test_merged_rows_are_kept_as_they_are_by_every_engine(tmp_path: Path, options: dict[str, str]) -> None:
    made = Catalog(tmp_path / "wh")
    made.create_database("db")
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("s", pa.string())])
    table = made.create_table("db.t", Schema(columns, ["k"], options={"bucket": "1", **options}))
    for turn in range(3):
        table.write(rows(range(5 * turn, 20 + 5 * turn), v=100 - 40 * turn))
    if options.get("merge-engine") == "first-row":
        table.compact(full=True)  # only then its rows can be seen
    before = content(table)
    report = table.apply(table.plan_maintenance("rescale", bucket_num=3))
    assert isinstance(report, RescaleReport)
    assert content(table) == before
    made.alter_table("db.t", [SchemaChange.set_option("bucket", "3")])
    table = made.table("db.t")
    table.write(rows(range(3), v=1000))
    assert len(content(table)) == len(before)


def test_rows_of_an_append_table_keep_the_order_of_their_key(tmp_path: Path) -> None:
    made = Catalog(tmp_path / "wh")
    made.create_database("db")
    columns = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    table = made.create_table("db.t", Schema(columns, options={"bucket": "2", "bucket-key": "k"}))
    for turn in range(4):
        table.write({"k": [0, 1, 2, 3] * 2, "n": list(range(8 * turn, 8 * turn + 8))})
    table.apply(table.plan_maintenance("rescale", bucket_num=3))
    found = table.to_arrow()
    for key in range(4):
        mine = [n for k, n in zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True) if k == key]
        assert mine == [n for n in range(32) if n % 4 == key]
    assert totals(table) == {bytes(12): {3}}


def test_what_has_no_fixed_buckets_or_makes_no_sense_is_refused(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True)
    table.write(rows([1], dt="a"))
    for kind, message, arguments in (
        (InvalidOption, "bucket_num", {"bucket_num": 0}),
        (InvalidOption, "at most 2,147,483,647 buckets", {"bucket_num": 1 << 31}),
        (InvalidOption, "bucket_num", {"bucket_num": "many"}),
        (InvalidOption, "partitions", {"partitions": []}),
        (ColumnNotFound, "'k'", {"partitions": [{"k": 1}]}),
        (InvalidOption, "rescale argument", {"buckets": 3}),
    ):
        with pytest.raises(kind, match=message):
            table.plan_maintenance("rescale", **arguments)
    made = Catalog(tmp_path / "other")
    made.create_database("db")
    unaware = made.create_table("db.t", Schema(pa.schema([("k", pa.int64())])))
    with pytest.raises(UnsupportedFeature, match="fixed number of buckets"):
        unaware.plan_maintenance("rescale", bucket_num=2)
    assert keyed(tmp_path, name="db.empty").plan_maintenance("rescale", bucket_num=2).declined[0].reason == "empty"


def test_a_plan_whose_partition_changed_is_stale(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(10)))
    plan = table.plan_maintenance("rescale", bucket_num=2)
    table.write(rows([99]))
    files = data_files_on_disk(table.store)
    with pytest.raises(PlanStale, match="since it was planned"):
        table.apply(plan)
    assert data_files_on_disk(table.store) == files
    assert table.ledger()[-1].outcome == "refused"


@pytest.mark.parametrize("rival", ["write", "compact", "truncate"])
def test_a_commit_to_the_partition_meanwhile_makes_it_fail_and_nothing_is_lost(
    tmp_path: Path, rival: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(10)))
    table.write(rows(range(5, 15), v=3))
    plan = table.plan_maintenance("rescale", bucket_num=2)
    real = Committer.replace_partitions
    rivals: dict[str, Any] = {
        "write": lambda: table.write(rows([99])),
        "compact": lambda: table.compact(full=True),
        "truncate": table.truncate,
    }

    def late(self: Committer, *arguments: Any, **named: Any) -> Any:
        rivals[rival]()
        return real(self, *arguments, **named)

    monkeypatch.setattr(Committer, "replace_partitions", late)
    with pytest.raises(CommitConflict, match="nothing was replaced"):
        table.apply(plan)
    assert len(content(table)) == {"write": 16, "compact": 15, "truncate": 0}[rival]
    snapshot = snapshots.latest(table.store)
    assert snapshot is not None
    named = {name for number in range(1, snapshot.id + 1) for name in _added(table, number)}
    assert data_files_on_disk(table.store) == named


def _added(table: Table, number: int) -> list[str]:
    delta = manifests.delta_entries(table.store, snapshots.read(table.store, number))
    return list(delta.column("file_name").to_pylist())


def test_rows_that_changed_on_the_way_are_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(10)))
    files = data_files_on_disk(table.store)
    real = rescale.stored_rows

    def lossy(*arguments: Any) -> Any:
        for batch in real(*arguments):
            yield batch.slice(1) if arguments[0].options.bucket == 2 else batch

    monkeypatch.setattr(rescale, "stored_rows", lossy)
    with pytest.raises(VerificationFailed, match="re-read"):
        table.apply(table.plan_maintenance("rescale", bucket_num=2))
    assert data_files_on_disk(table.store) == files
    assert table.store.clock.now_ms() == NOW


def test_a_rescale_is_verified_partition_by_partition(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True)
    for dt in ("a", "b"):
        table.write(rows(range(40), dt=dt))
        table.write(rows(range(20, 60), v=7, dt=dt))
    table.write(rows([1, 2], dt="b"), row_kinds=pa.array(["-D", "-D"]))
    table.apply(table.plan_maintenance("rescale", bucket_num=3, partitions=[{"dt": "b"}]))
    report = table.verify(3, 6)
    assert not report.ok and [d.bucket for d in report.differences] == ["dt=b, 1 and 3 buckets"]  # snapshots 4, 5: rows
    report = table.verify(5, 6)
    assert report.ok and (report.rows_a, report.rows_b) == (58, 58)
    assert (report.buckets, report.by_reference, report.by_digest) == (4, 1, 3)
    assert table.verify(6, 5).ok


LIES: dict[str, Any] = {
    "rows lost": lambda batch: batch.slice(1),
    "a row added": lambda batch: pa.RecordBatch.from_pydict(
        {**batch.slice(0, 1).to_pydict(), "k": [99], "_KEY_k": [99]}, schema=batch.schema
    ),
    "a value changed": lambda batch: batch.set_column(
        batch.schema.get_field_index("v"), batch.schema.field("v"), pa.array([7] * batch.num_rows, pa.int64())
    ),
    "rows where no lookup finds them": lambda batch: batch,
}


@pytest.mark.parametrize("lie", sorted(LIES))
def test_a_rescale_that_lied_is_found_afterwards(tmp_path: Path, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(10)))
    table.write(rows(range(5, 15), v=3))
    real = rescale.stored_rows

    def lying(*arguments: Any) -> Any:
        for batch in real(*arguments):
            if arguments[0].options.bucket == 2:  # what was written is read again
                yield batch
                continue
            if lie == "a row added":
                yield batch
            yield LIES[lie](batch)

    with monkeypatch.context() as patched:
        patched.setattr(rescale, "stored_rows", lying)
        patched.setattr(rescale, "require_same_content", lambda *_: None)  # it would stop them all
        if lie not in list(LIES)[:3]:
            patched.setattr(bucket, "bucket_of", lambda *given: 1 - hashing.bucket_of(*given))
        table.apply(table.plan_maintenance("rescale", bucket_num=2))
    report = table.verify(2, 3)
    assert not report.ok
    (found,) = report.differences
    assert (found.bucket, found.rows_a) == ("1 and 2 buckets", 15) and found.digest_a != found.digest_b
    assert found.rows_b == {"rows lost": 14, "a row added": 16, "a value changed": 15}.get(lie, 0)


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_changes_that_no_changelog_holds_yet_are_compacted_before_they_are_rescaled(
    tmp_path: Path, producer: str
) -> None:
    table = keyed(tmp_path, changelog_producer=producer)
    table.write(rows(range(4)))
    table.compact(full=True)
    table.write(rows([1], v=10))
    plan = table.plan_maintenance("rescale", bucket_num=2)
    assert plan.items == ()
    assert f"changes of it wait for the changelog of changelog-producer = {producer}" in plan.declined[0].text
    table.compact(full=True)
    table.apply(table.plan_maintenance("rescale", bucket_num=2))
    changes = [int(snapshot.changelog_record_count or 0) for snapshot in table.snapshots()]
    assert changes == [0, 4, 0, 2, 0]  # four new rows; one row before and after; nothing of the rescale
