"""The ledger: one file a run, created once, readable for ever, and never the reason why maintenance fails."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import CommitUnknown, CorruptFile, DredgeError, InvalidOption, StorageFull, StorageRefused
from lsm_core.maintenance.ledger import LedgerEntry, find_entry, new_run_id, read_ledger, write_entry
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.maintenance.tables import HOUR, NOW, content, keyed, rows, with_io


def test_every_run_is_a_file_of_json_lines(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(10), v=i))
    report = table.compact()
    table.store.clock.advance(2 * HOUR)
    table.expire_snapshots(retain_max=1)
    files = sorted((Path(table.store.root) / "dredge" / "ledger").iterdir())
    assert [json.loads(path.read_text().splitlines()[0])["action"] for path in files] == ["compact", "expire_snapshots"]
    compaction, expiry = table.ledger()
    assert (compaction.snapshot_id, compaction.plan_hash, compaction.time_ms) == (6, report.plan_hash, NOW)
    (line,) = compaction.lines
    assert line["bucket"] == "bucket-0" and line["digest"] == report.verification.digests["bucket-0"]
    assert line["reason"].startswith("5 sorted runs >= 5")
    assert [item["snapshot"] for item in expiry.lines] == [1, 2, 3, 4, 5]


def test_runs_that_change_nothing_leave_no_entry(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.write(rows(range(3)))
    table.compact()
    table.expire_snapshots()
    assert table.ledger() == []


def test_an_entry_is_never_overwritten_and_limits_bound_what_is_read(tmp_path: Path) -> None:
    store = keyed(tmp_path).store
    entry = LedgerEntry(new_run_id(store, "compact"), "compact", store.name, NOW, "done", lines=({"event": "x"},))
    write_entry(store, entry)
    with pytest.raises(CorruptFile, match="already there"):
        write_entry(store, entry)
    assert read_ledger(store) == [entry] and find_entry(store, entry.run_id) == entry
    assert read_ledger(store, heads=True) == [replace(entry, lines=())]
    for number in range(20):
        write_entry(store, replace(entry, run_id=f"{NOW + 1 + number}-trash-{number:08x}"))
    assert read_ledger(store, limit=0) == []
    counting = FaultyFileIO(LocalFileIO())
    newest = read_ledger(with_io(keyed_again(tmp_path), counting).store, 3)
    assert [item.run_id[-1] for item in newest] == list("123")
    assert sum(path.endswith(".jsonl") for _, path in counting.log) == 3


def keyed_again(tmp_path: Path) -> Table:
    return Catalog(tmp_path / "wh").table("db.t")


_WHOLE = LedgerEntry(f"{NOW}-compact-0123abcd", "compact", "db.t", NOW, "done", "hash").head()


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "[]\n",
        "{}\n",
        "not json\n",
        "\udcff".encode("utf-8", "surrogateescape"),
        "[" * 100_000,
        json.dumps({**_WHOLE, "version": 2}),
        json.dumps({**_WHOLE, "time_ms": "now"}),
        json.dumps({**_WHOLE, "time_ms": 10**30}),
        json.dumps({**_WHOLE, "snapshot_id": 10**30}),
        json.dumps({**_WHOLE, "seconds": "1"}),
        json.dumps({**_WHOLE, "report": []}),
        json.dumps({**_WHOLE, "run_id": None}),
        "a folder",
    ],
)
def test_damaged_and_newer_entries_are_told_by_name_and_stop_nothing(tmp_path: Path, damage: str | bytes) -> None:
    table = keyed(tmp_path)
    for number in range(5):
        table.write(rows(range(10), v=number))
    plan = table.plan_maintenance("compact")
    run_id = f"{NOW + 1}-compact-0123abcd"
    folder = Path(table.store.ledger_dir)
    folder.mkdir(parents=True)
    path = folder / f"{run_id}.jsonl"
    if damage == "a folder":
        path.mkdir()
    else:
        path.write_bytes(damage if isinstance(damage, bytes) else damage.encode())
    report = table.apply(plan)
    assert report.snapshot_id == 6
    assert table.apply(plan).applied_before.snapshot_id == 6
    assert table.load_plan(table.save_plan(plan)) == plan
    (good, bad) = sorted(table.ledger(), key=lambda one: one.readable, reverse=True)
    assert (good.run_id, good.outcome) == (report.run_id, "done")
    assert (bad.run_id, bad.outcome, bad.time_ms, bad.action) == (run_id, "unreadable", NOW + 1, "compact")
    assert f"{run_id}.jsonl" in str(bad.error)
    assert {one["run_id"]: one["outcome"] for one in view(tmp_path)} == {report.run_id: "done", run_id: "unreadable"}
    with pytest.raises(CorruptFile, match=run_id):
        find_entry(table.store, run_id)
    with pytest.raises(CorruptFile, match=run_id):
        table.undo(run_id)
    assert table.undo(report.run_id).snapshot_id == 7


def test_members_of_later_versions_are_passed_over(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    folder = Path(table.store.ledger_dir)
    folder.mkdir(parents=True)
    (folder / f"{NOW}-compact-0123abcd.jsonl").write_text(json.dumps({**_WHOLE, "weather": "fair", "lines": 7}) + "\n")
    (entry,) = table.ledger()
    assert (entry.outcome, entry.plan_hash, entry.lines) == ("done", "hash", ())


def view(tmp_path: Path, **reading: Any) -> list[dict[str, Any]]:
    found = Catalog(tmp_path / "wh").table("db.t$dredge_ledger").to_arrow(**reading)
    return list(found.to_pylist())


def test_the_ledger_is_a_system_table(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    assert view(tmp_path) == []
    for number in range(5):
        table.write(rows(range(10), v=number))
    report = table.apply(table.plan_maintenance("compact"), approved_by="me")
    table.store.clock.advance(1)  # runs of the same millisecond come in no order
    table.undo(report.run_id)
    table.store.clock.advance(1)
    stale = table.plan_maintenance("undo", run_id=table.compact().run_id)
    table.write(rows([1]))
    table.compact(full=True)
    table.store.clock.advance(1)
    with pytest.raises(DredgeError):
        table.apply(stale)
    compaction, undo, *_, refused = view(tmp_path)
    assert {name: compaction[name] for name in ("run_id", "action", "outcome", "approved_by", "snapshot_id")} == {
        "run_id": report.run_id,
        "action": "compact",
        "outcome": "done",
        "approved_by": "me",
        "snapshot_id": 6,
    }
    assert (compaction["files_in"], compaction["rows_in"], compaction["rows_out"]) == (5, 50, 10)
    assert compaction["bytes_in"] == report.bytes_in and compaction["plan_hash"] == report.plan_hash
    assert json.loads(compaction["rows_dropped"]) == dict(report.rows_dropped)
    assert compaction["verification"] == "V2 (full)" and compaction["peak_rss_bytes"] > 2**20
    assert compaction["seconds"] == report.seconds and compaction["predicted_seconds"] == report.predicted_seconds
    assert f"process {os.getpid()}" in compaction["who"] and compaction["base_snapshot_id"] == 5
    assert (undo["action"], undo["verification"], json.loads(undo["report"])["undone_run"]) == (
        "undo",
        "V1",
        report.run_id,
    )
    assert refused["outcome"] == "refused" and "PlanStale" in refused["error"]
    assert [item["action"] for item in view(tmp_path, filter=[("outcome", "=", "refused")])] == ["undo"]
    assert view(tmp_path, columns=["action"], limit=1) == [{"action": "compact"}]


def test_hostile_numbers_of_a_report_are_no_numbers(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    report = {"files_in": "many", "rows_in": 10**30, "bytes_in": True, "rows_dropped": 3, "verification": {"level": 2}}
    write_entry(table.store, replace(_entry(table), report={**report, "trash_id": "x", "expired": ["one"]}))
    (row,) = view(tmp_path)
    assert {row[name] for name in ("files_in", "rows_in", "bytes_in", "rows_dropped", "verification")} == {None}
    with pytest.raises(InvalidOption, match="trash_id"):
        table.restore("x")


def _entry(table: Table) -> LedgerEntry:
    return LedgerEntry(new_run_id(table.store, "compact"), "expire_snapshots", table.name, NOW, "done")


def test_writers_at_the_same_time_lose_no_entry(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: write_entry(table.store, _entry(table)), range(80)))
    entries = table.ledger()
    assert len(entries) == 80 and all(entry.readable for entry in entries)
    assert len(table.ledger(limit=5)) == 5


def test_an_outcome_that_nobody_knows_is_written_as_such_and_can_be_undone(tmp_path: Path) -> None:
    table = keyed(tmp_path, commit__max_retries="0")
    for number in range(5):
        table.write(rows(range(10), v=number))
    before = content(table)
    plan = table.plan_maintenance("compact")
    table.store.file_io = _Unsure()
    with pytest.raises(CommitUnknown):
        table.apply(plan)
    table = keyed_again(tmp_path)
    (entry,) = table.ledger()
    assert (entry.outcome, entry.snapshot_id) == ("unknown", None) and table.latest_snapshot().id == 6
    assert table.undo(entry.run_id).undone_snapshot == 6
    assert content(table) == before


class _Unsure(LocalFileIO):
    """Publishes snapshots, reports that it failed, and cannot be asked."""

    def write_exclusive(self, path: str, data: bytes) -> bool:
        done = super().write_exclusive(path, data)
        if "/snapshot-" in path:
            raise OSError(errno.EIO, "lost", path)
        return done

    def read_bytes(self, path: str) -> bytes:
        if path.endswith("/snapshot-6"):
            raise OSError(errno.EIO, "lost", path)
        return super().read_bytes(path)


def test_a_ledger_that_cannot_be_written_does_not_undo_what_was_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(10), v=i))
    counting = FaultyFileIO(LocalFileIO())
    probe = keyed(tmp_path / "probe")
    for i in range(5):
        probe.write(rows(range(10), v=i))
    with_io(probe, counting).compact()
    step = next(at for at, (_, path) in enumerate(counting.log, 1) if "/ledger/" in path)
    report = with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step)).compact()
    assert report.snapshot_id == 6
    assert "is not in the ledger" in caplog.text
    assert table.ledger() == []


@pytest.mark.parametrize(("number", "kind"), [(errno.EROFS, StorageRefused), (errno.ENOSPC, StorageFull)])
def test_storage_that_takes_neither_files_nor_ledger_is_told_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: type[DredgeError],
) -> None:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows(range(10), v=i))

    def refuse(path: str, *_: object) -> None:
        raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as patched:
        patched.setattr("lsm_core.storage.local_file_io.io.FileIO", refuse)
        with pytest.raises(kind, match="bucket-0"):
            table.compact()
    assert not caplog.records
    assert table.ledger() == []
