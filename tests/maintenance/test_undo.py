"""Undoing a compaction: its files come back in a new snapshot, every read stays as it is, and what cannot be undone is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.commit import Committer
from lsm_core.errors import CommitConflict, CorruptFile, InvalidOption, PlanRefused, PlanStale, VerificationFailed
from lsm_core.format.manifest import ENTRY_SCHEMA
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance import MaintenancePlan, UndoReport
from lsm_core.maintenance.actions.undo import undoing
from lsm_core.metadata import manifests, snapshots, tags
from tests.maintenance.tables import HOUR, assert_whole, catalog, content, keyed, on_disk, rows, strays

LATE = 10_000 * HOUR


def live(table: Table) -> dict[str, int]:
    """Names of live files and their levels."""
    newest = table.latest_snapshot()
    assert newest is not None
    entries = manifests.live_entries(table.store, newest)
    return dict(zip(entries["file_name"].to_pylist(), entries["level"].to_pylist(), strict=True))


def stacked(tmp_path: Path, runs: int = 5, **options: str) -> Table:
    """So many overlapping level-0 files, deletes among them."""
    table = keyed(tmp_path, **options)
    for number in range(runs - 1):
        table.write(rows(range(2 * number, 2 * number + 10), v=100 * number))
    table.write(rows([1, 5, 40], v=7), row_kinds=pa.array(["-D", "-D", "+I"]))
    return table


def expire_all(table: Table) -> None:
    """Only the newest snapshot stays, and nothing waits in the trash."""
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=table.store.clock.now_ms() + LATE)
    table.sweep_trash(now_ms=table.store.clock.now_ms() + LATE)


def refusal(table: Table, run_id: str, **arguments: Any) -> str:
    """Why the run cannot be undone, as plan and verb say it; nothing is changed by asking."""
    before = on_disk(table)
    with pytest.raises(PlanRefused) as refused:
        table.undo(run_id, **arguments)
    assert on_disk(table) == before
    return str(refused.value)


def test_the_files_come_back_and_every_read_stays(tmp_path: Path) -> None:
    table = stacked(tmp_path)
    files, before = live(table), content(table)
    report = table.compact()
    compacted = live(table)
    undone = table.undo(report.run_id)
    assert isinstance(undone, UndoReport)
    assert (undone.snapshot_id, undone.undone_snapshot, undone.undone_run) == (7, 6, report.run_id)
    assert (undone.files_removed, undone.files_restored, undone.files_moved, undone.verification) == (1, 5, 0, "V1")
    assert undone.differences == ()
    newest, fifth = table.latest_snapshot(), snapshots.read(table.store, 5)
    assert newest.commit_kind is CommitKind.COMPACT and newest.total_record_count == fifth.total_record_count
    assert newest.properties["dredge.undo-of"] == report.run_id
    # The same levels under new names: what another engine takes for gone is not named again.
    assert sorted(live(table).values()) == sorted(files.values())
    assert not live(table).keys() & (files.keys() | compacted.keys())
    assert content(table) == before
    assert {entry.action for entry in table.ledger()} == {"compact", "undo"}
    assert "snapshot 7 undoes snapshot 6" in undone.lines("db.t")[0] and "answers as before" in undone.lines("db.t")[2]
    again = table.compact()
    assert (again.snapshot_id, again.files_in) == (8, 5) and content(table) == before
    assert table.undo(again.run_id).snapshot_id == 9
    assert content(table) == before


def test_later_writes_stay_and_old_snapshots_may_expire(tmp_path: Path) -> None:
    table = stacked(tmp_path)
    report = table.compact(full=True)
    table.write(rows([2, 3, 50], v=1000))
    table.write(rows([4], v=0), row_kinds=pa.array(["-D"]))
    before = content(table)
    assert table.undo(report.run_id).files_restored == 5
    assert content(table) == before and sorted(live(table).values()) == [0] * 7
    expire_all(table)
    assert content(table) == before and not strays(table)
    assert_whole(table)
    table.compact(full=True)
    assert content(table) == before


def test_a_plan_is_json_is_applied_once_and_needs_its_files(tmp_path: Path) -> None:
    table = stacked(tmp_path)
    report = table.compact()
    before, disk = content(table), on_disk(table)
    plan = table.plan_maintenance("undo", run_id=report.run_id)
    assert on_disk(table) == disk
    assert MaintenancePlan.from_json(plan.to_json()) == plan
    (item,) = plan.items
    assert [file.level for file in item.restored] == [0] * 5 and [file.level for file in item.inputs] == [5]
    assert plan.estimate.bytes_in == sum(file.size for file in item.restored) == item.bytes_copied
    table.write(rows([60]))  # new files make no plan stale
    assert table.apply(plan, approved_by="me").snapshot_id == 8
    assert table.apply(plan).applied_before.snapshot_id == 8
    assert [entry.approved_by for entry in table.ledger() if entry.action == "undo"] == ["me"]
    assert "already-undone: snapshot 8 undid" in refusal(table, report.run_id)
    assert len(content(table)) == len(before) + 1
    other = table.compact(full=True)
    later = table.plan_maintenance("undo", run_id=other.run_id)
    table.write(rows(range(3)))
    table.compact(full=True)
    with pytest.raises(PlanStale, match="built on what it left"):
        table.apply(later)
    assert [entry.outcome for entry in table.ledger() if entry.plan_hash == later.hash] == ["refused"]


def test_a_file_that_was_only_moved_comes_back_as_a_copy(tmp_path: Path) -> None:
    """Java's scan leaves out a file that a manifest deletes, even if a later one adds it on the same level again."""
    table = keyed(tmp_path)
    table.write(rows(range(10)))
    (name,) = live(table)
    report = table.compact(full=True)
    assert report.files_upgraded == 1 and live(table) == {name: 5}
    undone = table.undo(report.run_id)
    assert (undone.files_moved, undone.files_removed, undone.files_restored) == (0, 1, 1)
    ((copy, level),) = live(table).items()
    assert (copy != name, level) == (True, 0)
    expire_all(table)
    assert content(table) == sorted(content(table)) and len(content(table)) == 10


def test_what_later_commits_used_is_refused_by_name(tmp_path: Path) -> None:
    table = stacked(tmp_path)
    first = table.compact(full=True)
    table.write(rows(range(4), v=9))
    second = table.compact(full=True)
    message = refusal(table, first.run_id)
    assert "outputs-used" in message and "bucket-0: snapshot 8 (by " in message and "undo that one first" in message
    # In the right order both can be undone.
    before = content(table)
    table.undo(second.run_id)
    assert content(table) == before
    assert "outputs-used" in refusal(table, first.run_id)  # its output came back under another name
    third = table.compact(full=True)
    table.write(rows(range(3), v=1), overwrite={})
    assert "outputs-used" in refusal(table, third.run_id)


def test_newer_levels_above_an_older_compaction_are_refused(tmp_path: Path) -> None:
    table = keyed(tmp_path, num_levels="6")
    table.write(rows(range(20_000)))
    table.compact(full=True)
    for number in range(5):
        table.write(rows(range(number, number + 3), v=number))
    minor = table.compact()
    assert minor.snapshot_id is not None and len(set(live(table).values())) == 2
    for number in range(5):
        table.write(rows(range(900 + number, 903 + number), v=number))
    if table.compact().snapshot_id is not None:
        assert "outputs-used" in refusal(table, minor.run_id)


@pytest.mark.parametrize("setting", ["full", "counts"])
def test_deletes_that_come_back_win_over_no_newer_row(tmp_path: Path, setting: str) -> None:
    table = keyed(tmp_path, dredge__verification=setting)
    table.write(rows(range(10)))
    table.write(rows([5]), row_kinds=pa.array(["-D"]))
    report = table.compact(full=True)
    before = content(table)
    message = refusal(table, report.run_id)
    assert "numbers-taken: bucket-0: it dropped the rows with the largest sequence numbers" in message
    undone = table.undo(report.run_id, allow_changes=True)
    assert content(table) == before and undone.differences == ()
    again = table.compact(full=True)
    table.write(rows([5], v=100))  # takes the number of the delete
    before = content(table)
    for arguments in ({}, {"allow_changes": True}):
        assert "numbers-taken: bucket-0: data-" in refusal(table, again.run_id, **arguments)
    assert content(table) == before


def test_a_writer_that_took_a_delete_s_number_meanwhile_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(10)))
    table.write(rows([5]), row_kinds=pa.array(["-D"]))
    report = table.compact(full=True)
    real = Committer.commit_compaction

    def meanwhile(self: Any, *arguments: Any, **named: Any) -> Any:
        Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t").write(rows([5], v=1))
        return real(self, *arguments, **named)

    monkeypatch.setattr(Committer, "commit_compaction", meanwhile)
    with pytest.raises(CommitConflict):
        table.undo(report.run_id, allow_changes=True)
    assert (5, 6, None) in content(table) and not strays(table)


def test_only_runs_of_compactions_can_be_undone(tmp_path: Path) -> None:
    table = stacked(tmp_path)
    with pytest.raises(
        InvalidOption, match=r"'run_id' of table db\.t cannot be 'x'; accepted: no run compacted this table"
    ):
        table.undo("x")
    report = table.compact()
    for wrong in ("../../x", "x/y", ""):
        with pytest.raises(InvalidOption, match=rf"accepted: a run that compacted: {report.run_id}"):
            table.undo(wrong)
    undone = table.undo(report.run_id)
    with pytest.raises(InvalidOption, match="this one did 'undo'"):
        table.undo(undone.run_id)


def test_a_rolled_back_compaction_is_not_mistaken_for_another(tmp_path: Path) -> None:
    table = stacked(tmp_path)
    report = table.compact()
    path = Path(table.store.snapshot_path(6))
    path.unlink()
    (path.parent / "LATEST").write_text("5")
    assert "history-changed" in refusal(table, report.run_id)
    table.write(rows([9]))
    assert "snapshot 6 is not the one that this run published" in refusal(table, report.run_id)


def test_without_a_tag_an_expired_compaction_cannot_be_undone(tmp_path: Path) -> None:
    table = stacked(tmp_path)
    report = table.compact()
    table.write(rows([70]))
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=table.store.clock.now_ms() + LATE)
    assert "files-are-gone: snapshot 6 has expired, and no tag" in refusal(table, report.run_id)
    assert "'dredge.pre-compaction-tag' = 'true'" in refusal(table, report.run_id)


def test_inputs_that_were_deleted_are_told(tmp_path: Path) -> None:
    table = stacked(tmp_path)
    report = table.compact()
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=table.store.clock.now_ms() + LATE)
    # Set aside, not yet deleted: that is soon enough.
    plan = table.plan_maintenance("undo", run_id=report.run_id)
    table.sweep_trash(now_ms=table.store.clock.now_ms() + LATE)
    message = refusal(table, report.run_id)
    assert "files-are-gone" in message and "was deleted" in message
    with pytest.raises(PlanStale, match="was deleted"):
        table.apply(plan)


def test_the_tag_before_a_compaction_keeps_what_undoing_needs(tmp_path: Path) -> None:
    options = {"dredge__pre_compaction_tag": "true", "dredge__pre_compaction_tag__time_retained": "2 h"}
    table = stacked(tmp_path, **options)
    report = table.compact()
    (name,) = tags.list_details(table.store)
    assert name == report.tag_before == f"dredge-before-compaction-5-{report.plan_hash[:8]}"
    details = tags.list_details(table.store)[name]
    assert (details.snapshot.id, details.time_retained_ms) == (5, 2 * HOUR)
    assert any(f"dredge undo db.t {report.run_id}" in line for line in report.lines("db.t"))
    table.write(rows([70]))
    before = content(table)
    expire_all(table)
    assert [snapshot.id for snapshot in table.snapshots()] == [7]
    undone = table.undo(report.run_id)
    assert (undone.files_restored, undone.files_removed) == (5, 1)
    assert content(table) == before
    expire_all(table)
    assert content(table) == before
    assert table.compact(full=True).files_in == 6
    assert content(table) == before
    assert stacked(tmp_path / "off").compact().tag_before == ""


def test_a_compaction_of_nothing_makes_no_tag(tmp_path: Path) -> None:
    table = keyed(tmp_path, dredge__pre_compaction_tag="true")
    table.write(rows(range(3)))
    assert table.compact().snapshot_id is None
    assert tags.list_tags(table.store) == {}


def test_buckets_that_cannot_be_undone_may_be_left(tmp_path: Path) -> None:
    table = keyed(tmp_path, partitioned=True)
    for dt in ("a", "b"):
        for number in range(3):
            table.write(rows(range(number, number + 5), v=number, dt=dt))
    report = table.compact(full=True)
    table.write(rows([1], dt="b"))
    table.compact(full=True, partitions=[{"dt": "b"}])
    before = content(table)
    message = refusal(table, report.run_id)
    assert "dt=b/bucket-0: snapshot 9" in message and "with `partial` the other 1 buckets can be undone" in message
    undone = table.undo(report.run_id, partial=True)
    assert undone.files_restored == 3 and [item.subject for item in undone.declined] == ["dt=b/bucket-0"]
    assert content(table) == before and sorted(live(table).values()) == [0, 0, 0, 5]


def test_what_was_told_to_streams_is_not_told_twice(tmp_path: Path) -> None:
    table = stacked(tmp_path, changelog_producer="lookup")
    report = table.compact(full=True)
    assert report.changelog_rows > 0
    assert "changes-told" in refusal(table, report.run_id)


@pytest.mark.parametrize("options", [{"deletion_vectors__enabled": "true"}, {"merge_engine": "first-row"}])
def test_rows_that_readers_see_are_not_hidden(tmp_path: Path, options: dict[str, str]) -> None:
    table = keyed(tmp_path, **options)
    for number in range(5):
        table.write(rows(range(number, number + 4), v=number))
    report = table.compact(full=True)
    before = content(table)
    assert "rows-would-hide" in refusal(table, report.run_id)
    undone = table.undo(report.run_id, allow_changes=True)
    assert undone.hidden_rows == 20 and content(table) == []
    table.compact(full=True)
    assert content(table) == before


def test_deletion_vectors_of_a_keyed_table_are_as_they_were(tmp_path: Path) -> None:
    options = {"deletion_vectors__enabled": "true", "deletion_vectors__merge_on_read": "true"}
    table = keyed(tmp_path, **options)
    table.write(rows(range(3000)))
    table.compact(full=True)
    table.write(rows(range(10, 20), v=10_000))
    table.compact()  # marks rows of the top level
    table.write(rows(range(15, 25), v=20_000))
    report = table.compact()
    assert report.snapshot_id == 6
    before = content(table)
    table.undo(report.run_id)
    assert content(table) == before
    table.compact()
    assert content(table) == before
    table.compact(full=True)
    assert content(table) == before


def appended(tmp_path: Path, **options: str) -> Table:
    schema = Schema(
        pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())]),
        options={"bucket": "-1", "compaction.min.file-num": "2", **options},
    )
    table = catalog(tmp_path).create_table("db.t", schema)
    for number in range(4):
        table.write(rows(range(10 * number, 10 * number + 6), v=number))
    return table


def test_append_tables_get_their_files_and_marked_rows_back(tmp_path: Path) -> None:
    table = appended(tmp_path, **{"deletion-vectors.enabled": "true"})
    table.delete([("k", "in", [1, 12])])
    before = content(table)
    report = table.compact(full=True)
    table.write(rows([99]))
    table.delete([("k", "=", 99)])  # marks a file that the compaction never saw
    assert content(table) == before
    undone = table.undo(report.run_id)
    assert content(table) == before and undone.files_restored == report.files_in
    table.compact(full=True)
    assert content(table) == before and not strays(table)


def test_rows_marked_in_what_a_compaction_wrote_are_not_lost(tmp_path: Path) -> None:
    table = appended(tmp_path, **{"deletion-vectors.enabled": "true"})
    report = table.compact(full=True)
    table.delete([("k", "=", 3)])
    assert "outputs-used" in refusal(table, report.run_id)


def test_row_ids_stay(tmp_path: Path) -> None:
    table = appended(tmp_path, **{"row-tracking.enabled": "true"})
    view = catalog(tmp_path).table("db.t$row_tracking")
    before = sorted(view.to_arrow().to_pylist(), key=lambda row: row["_ROW_ID"])
    report = table.compact(full=True)
    table.undo(report.run_id)
    after = sorted(catalog(tmp_path).table("db.t$row_tracking").to_arrow().to_pylist(), key=lambda row: row["_ROW_ID"])
    assert after == before
    table.write(rows([7]))
    assert pc.max(catalog(tmp_path).table("db.t$row_tracking").to_arrow()["_ROW_ID"]).as_py() == 24


def test_side_files_come_along(tmp_path: Path) -> None:
    table = stacked(tmp_path, file_index__bloom_filter__columns="v", file_index__in_manifest_threshold="1 b")
    beside = [name for name in on_disk(table) if name.endswith(".index")]
    assert len(beside) == 5
    report = table.compact()
    table.undo(report.run_id)
    expire_all(table)
    assert len([name for name in on_disk(table) if name.endswith(".index")]) == 5
    assert table.to_arrow(filter=[("v", "=", 47)]).num_rows == 1


def test_a_compaction_that_changed_answers_is_undone_when_asked_for(tmp_path: Path) -> None:
    table = stacked(tmp_path)
    was = content(table)
    report = table.compact(full=True)
    lose_a_row(table, tmp_path)
    assert len(content(table)) == len(was) - 1
    files = {name for name in on_disk(table) if "/ledger/" not in name}
    text = f"bucket-0 of table db.t answers {len(was) - 1} rows now and would answer {len(was)}"
    with pytest.raises(VerificationFailed, match=text):
        table.undo(report.run_id)
    assert {name for name in on_disk(table) if "/ledger/" not in name} == files
    undone = table.undo(report.run_id, allow_changes=True)
    assert content(table) == was
    assert [(difference.rows_a, difference.rows_b) for difference in undone.differences] == [(len(was) - 1, len(was))]
    assert f"warning: bucket-0 answered {len(was) - 1} rows and answers {len(was)} now" in undone.lines("db.t")[-1]


def damage(path: Path, how: str) -> None:
    """Damage a data file: lost, truncated, zeros, or replaced by a valid file of another size."""
    data = path.read_bytes()
    if how == "lost":
        path.unlink()
    elif how == "other":
        pq.write_table(pq.read_table(path).slice(1), path)
    else:
        path.write_bytes(data[: len(data) // 2] if how == "truncated" else bytes(len(data)))


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("how", ["lost", "truncated", "zeros", "other"])
@pytest.mark.parametrize("kind", ["keyed", "append"])
def test_damaged_outputs_are_replaced_without_reading_them(tmp_path: Path, kind: str, how: str, tagged: bool) -> None:
    tag = str(tagged).lower()
    if kind == "keyed":
        table = stacked(tmp_path, dredge__pre_compaction_tag=tag)
    else:
        table = appended(tmp_path, **{"dredge.pre-compaction-tag": tag})
    was = content(table) if kind == "keyed" else sorted(table.to_arrow().to_pylist(), key=str)
    report = table.compact(full=True)
    if kind == "keyed":
        table.write(rows([2], v=2000))
    if tagged:
        expire_all(table)
    newest = {name for name, level in live(table).items() if kind == "append" or level > 0}
    (path,) = Path(table.store.root).rglob(max(newest))
    damage(path, how)
    with pytest.raises(CorruptFile):
        table.to_arrow()
    undone = table.undo(report.run_id)
    assert undone.verification == "V1" and undone.differences == ()
    (text,) = undone.unreadable
    assert path.name in text and text.startswith("bucket-0")
    assert "could not be read before" in undone.lines("db.t")[-1] and path.name in undone.lines("db.t")[-1]
    if kind == "append":
        assert sorted(table.to_arrow().to_pylist(), key=str) == was
    else:
        assert len(content(table)) == len(was) and table.to_arrow(filter=[("k", "=", 2)])["v"].to_pylist() == [2002]
    table.compact(full=True)
    expire_all(table)
    for name in table.tags():
        table.delete_tag(name)
    table.sweep_trash(now_ms=table.store.clock.now_ms() + LATE)
    assert not strays(table)
    assert_whole(table)


def test_a_damaged_input_is_not_put_back(tmp_path: Path) -> None:
    table = stacked(tmp_path)
    inputs = sorted(live(table))
    report = table.compact(full=True)
    (path,) = Path(table.store.root).rglob(inputs[0])
    path.write_bytes(bytes(path.stat().st_size))
    before = content(table)
    files = {name for name in on_disk(table) if "bucket-" in name}
    with pytest.raises(CorruptFile, match="bucket-0"):
        table.undo(report.run_id)
    assert content(table) == before and {name for name in on_disk(table) if "bucket-" in name} == files


def lose_a_row(table: Table, tmp_path: Path) -> None:
    """Let the newest compaction have lost a row: its one file is another, and its snapshot says so."""
    store, newest = table.store, table.latest_snapshot()
    assert newest is not None
    (name,) = live(table)
    (path,) = Path(store.root).rglob(name)
    other = keyed(tmp_path / "other")
    other.write(table.to_arrow().slice(1))
    (source,) = Path(other.store.root).rglob(next(iter(live(other))))
    path.write_bytes(source.read_bytes())
    delta = manifests.delta_entries(store, newest)
    mine = pc.equal(delta["file_name"], name)
    for column, value in (("file_size", path.stat().st_size), ("row_count", other.to_arrow().num_rows)):
        field = ENTRY_SCHEMA.field(column)
        changed = pc.if_else(mine, pa.scalar(value, field.type), delta[column])
        delta = delta.set_column(ENTRY_SCHEMA.get_field_index(column), field, changed)
    listed, size = manifests.write_list(store, manifests.write_manifests(store, delta))
    changed_snapshot = replace(newest, delta_manifest_list=listed, delta_manifest_list_size=size)
    Path(store.snapshot_path(newest.id)).write_bytes(changed_snapshot.to_json())


@pytest.mark.parametrize("setting", ["sampled", "counts"])
def test_the_setting_of_verification_is_followed(tmp_path: Path, setting: str) -> None:
    table = stacked(tmp_path, dredge__verification=setting)
    before = content(table)
    undone = table.undo(table.compact().run_id)
    assert undone.verification == ("V0" if setting == "counts" else "V1")
    assert content(table) == before


def test_a_copy_that_is_not_its_source_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = stacked(tmp_path)
    report = table.compact()
    files = {name for name in on_disk(table) if "bucket-" in name}
    real = table.store.file_io.open_output

    def damaging(path: str) -> Any:
        out = real(path)
        if "bucket-" in path:
            write = out.write
            out.write = lambda data: write(bytes(data)[:-1] + b"!")
        return out

    monkeypatch.setattr(table.store.file_io, "open_output", damaging)
    with pytest.raises(VerificationFailed, match="is not what was copied"):
        table.undo(report.run_id)
    assert {name for name in on_disk(table) if "bucket-" in name} == files


def test_a_commit_in_between_is_a_conflict_and_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = stacked(tmp_path)
    report = table.compact(full=True)
    real = undoing.bucket_content
    done: list[int] = []

    def meanwhile(*arguments: Any) -> Any:
        if not done:
            done.append(1)
            other = Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t")
            other.write(rows([3], v=1))
            other.compact(full=True)
        return real(*arguments)

    monkeypatch.setattr(undoing, "bucket_content", meanwhile)
    with pytest.raises(CommitConflict, match="files that are to be put back were used by another commit") as conflict:
        table.undo(report.run_id)
    assert conflict.value.snapshot_id == 8
    assert not strays(table)
    assert [entry.outcome for entry in table.ledger() if entry.action == "undo"] == ["failed"]


def test_an_append_in_between_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = stacked(tmp_path)
    report = table.compact(full=True)
    real = Committer.commit_compaction

    def meanwhile(self: Any, *arguments: Any, **named: Any) -> Any:
        Catalog(tmp_path / "wh", clock=table.store.clock).table("db.t").write(rows([88], v=1))
        return real(self, *arguments, **named)

    before = content(table)
    monkeypatch.setattr(Committer, "commit_compaction", meanwhile)
    assert table.undo(report.run_id).snapshot_id == 8
    assert content(table) == sorted([*before, (88, 89, "s88")], key=repr)
