"""Snapshots and hints: hints only save work; what the directory holds decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core.errors import CorruptFile, SnapshotNotFound
from lsm_core.metadata import TableStore, hints, snapshots
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.metadata.tables import entry, make_store, publish, table_of


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    """Snapshots 3 to 12, no hints."""
    made = make_store(tmp_path)
    publish(made, 3, None, table_of(entry(made, "a")))
    text = Path(made.snapshot_path(3)).read_text()
    for number in range(4, 13):
        Path(made.snapshot_path(number)).write_text(text.replace('"id" : 3', f'"id" : {number}'))
    return made


def hint(store: TableStore, name: str, text: str) -> None:
    Path(f"{store.snapshot_dir}/{name}").write_text(text)


def test_an_empty_table_has_no_snapshot(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert (snapshots.latest_id(store), snapshots.earliest_id(store), snapshots.latest(store)) == (None, None, None)
    with pytest.raises(SnapshotNotFound, match="nothing was committed") as caught:
        snapshots.read(store, 1)
    assert not caught.value.expired


def test_without_hints_the_directory_is_listed(store: TableStore) -> None:
    assert (snapshots.earliest_id(store), snapshots.latest_id(store)) == (3, 12)
    assert snapshots.list_ids(store) == list(range(3, 13))
    assert [s.id for s in snapshots.iterate(store)] == list(range(3, 13))


@pytest.mark.parametrize("text", ["12", "5", "99", "", "x", "-1", "0", "12\n", "1e1", "9" * 30])
def test_any_latest_hint_leads_to_the_newest_snapshot(store: TableStore, text: str) -> None:
    hint(store, "LATEST", text)
    assert snapshots.latest_id(store) == 12
    newest = snapshots.latest(store)
    assert newest is not None
    assert newest.id == 12


@pytest.mark.parametrize(("text", "found"), [("3", 3), ("5", 5), ("1", 3), ("99", 3), ("", 3), ("x", 3)])
def test_an_earliest_hint_counts_only_if_its_snapshot_is_there(store: TableStore, text: str, found: int) -> None:
    hint(store, "EARLIEST", text)
    assert snapshots.earliest_id(store) == found


def test_a_good_latest_hint_saves_the_listing(store: TableStore) -> None:
    hint(store, "LATEST", "12")
    io = FaultyFileIO(LocalFileIO())
    counted = TableStore.open(io, store.root, store.name)
    io.log.clear()
    assert snapshots.latest_id(counted) == 12
    assert "list" not in [name for name, _ in io.log]


def test_hints_are_written_without_a_newline(store: TableStore) -> None:
    assert snapshots.write_latest_hint(store, 12)
    assert snapshots.write_earliest_hint(store, 3)
    assert Path(f"{store.snapshot_dir}/LATEST").read_bytes() == b"12"
    assert hints.read_hint(store.file_io, store.snapshot_dir, "EARLIEST") == 3
    store.file_io.delete(f"{store.snapshot_dir}/LATEST")
    assert hints.read_hint(store.file_io, store.snapshot_dir, "LATEST") is None


def test_a_hint_that_cannot_be_written_harms_nobody(store: TableStore, caplog: pytest.LogCaptureFixture) -> None:
    flaky = FaultyFileIO(LocalFileIO(), 1)
    assert hints.write_hint(flaky, store.snapshot_dir, "LATEST", 12)
    assert flaky.steps == 2
    broken = FaultyFileIO(LocalFileIO(), 1, fail_after=True)
    assert not hints.write_hint(broken, store.snapshot_dir, "LATEST", 12)
    assert broken.steps == 3
    assert "LATEST" in caplog.text


def test_a_missing_snapshot_is_expired_or_unknown(store: TableStore) -> None:
    with pytest.raises(SnapshotNotFound, match=r"db\.t.*snapshot 2.*expired") as caught:
        snapshots.read(store, 2)
    assert caught.value.expired
    with pytest.raises(SnapshotNotFound, match="3 to 12") as caught:
        snapshots.read(store, 13)
    assert not caught.value.expired
    assert snapshots.try_read(store, 13) is None


@pytest.mark.parametrize("content", ["", "{", "null", "[]", '{"id" : 12}', "cut"])
def test_a_damaged_snapshot_names_its_file(store: TableStore, content: str) -> None:
    path = Path(store.snapshot_path(12))
    path.write_text(path.read_text()[:100] if content == "cut" else content)
    with pytest.raises(CorruptFile, match="snapshot-12"):
        snapshots.read(store, 12)
    with pytest.raises(CorruptFile, match="snapshot-12"):
        snapshots.latest(store)


def test_a_snapshot_under_the_wrong_name_is_corrupt(store: TableStore) -> None:
    Path(store.snapshot_path(12)).write_text(Path(store.snapshot_path(5)).read_text())
    with pytest.raises(CorruptFile, match="holds snapshot id 5"):
        snapshots.read(store, 12)


def test_other_files_in_the_directory_are_no_snapshots(store: TableStore) -> None:
    for name in ("snapshot-13.tmp", ".snapshot-13.x.tmp", "snapshot-", "snapshot-0", "snapshot-07", "snapshot-x"):
        Path(f"{store.snapshot_dir}/{name}").write_text("{}")
    Path(f"{store.snapshot_dir}/snapshot-14").mkdir()
    assert snapshots.list_ids(store)[-1] == 12


def test_the_hint_never_hides_a_snapshot_that_came_meanwhile_behind_a_gap(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert snapshots.point_latest(store) == 12
    real, coming = hints.write_hint, [20, 30]

    def meanwhile(*arguments: object) -> bool:
        if coming:  # another engine commits behind a gap, and dies before it wrote its own hint
            Path(store.snapshot_path(coming.pop(0))).write_text(Path(store.snapshot_path(12)).read_text())
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(hints, "write_hint", meanwhile)
    assert snapshots.point_latest(store) == 30 == snapshots.latest_id(store)
    coming += [40, 50, 60]
    assert snapshots.point_latest(store) == 60 == snapshots.latest_id(store)
    assert not Path(f"{store.snapshot_dir}/LATEST").exists()
    for number in snapshots.list_ids(store):
        Path(store.snapshot_path(number)).unlink()
    assert snapshots.point_latest(store) is None
