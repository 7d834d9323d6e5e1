"""The ledger: one file a run, created once, readable for ever, and never the reason why maintenance fails."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from lsm_core.errors import CorruptFile, DredgeError, StorageFull, StorageRefused
from lsm_core.maintenance.record import LedgerEntry, new_run_id, read_ledger, write_entry
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.maintenance.tables import HOUR, NOW, keyed, rows, with_io


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


def test_an_entry_is_never_overwritten_and_damage_is_named(tmp_path: Path) -> None:
    store = keyed(tmp_path).store
    entry = LedgerEntry(new_run_id(store, "compact"), "compact", store.name, NOW, "done", lines=({"event": "x"},))
    path = write_entry(store, entry)
    with pytest.raises(CorruptFile, match="already there"):
        write_entry(store, entry)
    assert read_ledger(store) == [entry]
    assert read_ledger(store, limit=0) == []
    for damage in ("", "[]\n", "{}\n", "not json\n"):
        Path(path).write_text(damage)
        with pytest.raises(CorruptFile, match=entry.run_id):
            read_ledger(store)


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
