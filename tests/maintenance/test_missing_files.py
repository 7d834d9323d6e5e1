"""Files and manifests that are named and gone: listed, and taken out by a commit, so that the rest can be read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core import Table
from lsm_core.cli.app import run
from lsm_core.errors import CorruptFile, PlanRefused
from lsm_core.metadata import manifests
from tests.maintenance.tables import content, keyed, rows
from tests.support.stores import data_files_on_disk


def paths(table: Table) -> list[Path]:
    return sorted(Path(table.store.root).glob("**/bucket-*/data-*"), key=lambda path: path.stat().st_mtime_ns)


def live(table: Table) -> set[str]:
    return set(manifests.live_entries(table.store, table.latest_snapshot()).column("file_name").to_pylist())


def test_files_that_are_gone_are_listed_and_taken_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = keyed(tmp_path, partitioned=True)
    for i, dt in enumerate(["a", "a", "b", "c"]):
        table.write(rows(range(i, i + 3), v=i, dt=dt))
    assert table.plan_maintenance("remove_unexisting_files").items == ()
    first, _, third, _ = paths(table)
    saved = third.read_bytes()
    first.unlink()
    third.unlink()
    with pytest.raises((CorruptFile, FileNotFoundError)):
        content(table)
    assert run(["remove-unexisting-files", "db.t", "--dry-run", "-w", str(tmp_path / "wh")]) == 0
    assert first.name in capsys.readouterr().out and table.latest_snapshot().id == 4
    plan = table.plan_maintenance("remove_unexisting_files")
    assert [(item.partition_text, item.name, item.rows) for item in plan.items] == [
        ("dt=a", first.name, 3),
        ("dt=b", third.name, 3),
    ]
    only = table.plan_maintenance("remove_unexisting_files", partitions=[{"dt": "b"}])
    assert [item.name for item in only.items] == [third.name]
    third.write_bytes(saved)  # it comes back meanwhile: it stays
    report = table.apply(plan)
    assert (report.snapshot_id, report.files, report.rows) == (5, 1, 3)
    assert [item.subject for item in report.declined] == [f"dt=b/bucket-0/{third.name}"]
    assert {row[3] for row in content(table)} == {"a", "b", "c"} and len(content(table)) == 9
    latest = table.latest_snapshot()
    assert (latest.commit_kind.value, latest.total_record_count, latest.delta_record_count) == ("OVERWRITE", 9, -3)
    assert table.apply(plan).applied_before.snapshot_id == 5
    assert len(data_files_on_disk(table.store)) == 3


@pytest.mark.parametrize("mode", [{"bucket": "-1"}, {"deletion_vectors__enabled": "true"}])
def test_a_partition_goes_with_its_indexes(tmp_path: Path, mode: dict[str, str]) -> None:
    """What is dropped leaves neither hash indexes nor deletion vectors behind, and its keys can be written again."""
    table = keyed(tmp_path, partitioned=True, **mode)
    for v in range(2):
        for dt in ("2020-01-01", "2999-01-01"):
            table.write(rows(range(5 - 4 * v), v=v, dt=dt))
            table.compact(full=v == 0)
    latest = table.latest_snapshot()
    places = {entry.partition for entry in manifests.index_entries(table.store, latest)}
    assert len(places) == 2
    assert table.expire_partitions(table.store.clock.now_ms()).expired == ("dt=2020-01-01",)
    left = manifests.index_entries(table.store, table.latest_snapshot())
    assert {entry.partition for entry in left} < places and len(left) == 1
    table.write(rows(range(3), v=7, dt="2020-01-01"))
    table.compact()
    assert sorted(row[3] for row in content(table)) == ["2020-01-01"] * 3 + ["2999-01-01"] * 5


def test_a_storage_that_seems_gone_is_not_believed(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for i in range(7):
        table.write(rows([i]))
    for path in paths(table)[:6]:
        path.unlink()
    with pytest.raises(PlanRefused, match="6 of 7 files are gone"):
        table.plan_maintenance("remove_unexisting_files")
    assert table.apply(table.plan_maintenance("remove_unexisting_files", max_share=100)).files == 6
    assert len(content(table)) == 1


def test_a_file_with_deletion_vectors_is_declined(tmp_path: Path) -> None:
    table = keyed(tmp_path, deletion_vectors__enabled="true")
    table.write(rows(range(5)))
    table.compact(full=True)
    (path,) = [path for path in paths(table) if path.name in live(table)]
    table.write(rows([1], v=9))
    table.compact()
    path.unlink()
    plan = table.plan_maintenance("remove_unexisting_files")
    assert [item.reason for item in plan.declined] == ["vectors"] and plan.items == ()


def test_manifests_that_are_gone_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = keyed(tmp_path)
    for i in range(5):
        table.write(rows([i]))
    assert table.plan_maintenance("remove_unexisting_manifests").items == ()
    gone = manifests.data_manifests(table.store, table.latest_snapshot())[1]
    Path(table.store.manifest_path(gone.file_name)).unlink()
    with pytest.raises(CorruptFile, match="missing"):
        content(table)
    assert run(["remove-unexisting-manifests", "db.t", "--dry-run", "-w", str(tmp_path / "wh")]) == 0
    assert "are lost to the table" in capsys.readouterr().out
    report = table.apply(table.plan_maintenance("remove_unexisting_manifests"))
    assert (report.snapshot_id, report.manifests, report.rows_lost) == (6, 1, 1)
    assert [row[0] for row in content(table)] == [0, 2, 3, 4]
    latest = table.latest_snapshot()
    assert (latest.total_record_count, latest.delta_record_count) == (4, -1)
    table.write(rows([1]))
    assert len(content(table)) == 5
    for meta in manifests.data_manifests(table.store, table.latest_snapshot())[:4]:
        Path(table.store.manifest_path(meta.file_name)).unlink()
    with pytest.raises(PlanRefused, match="check that their storage is available"):
        table.plan_maintenance("remove_unexisting_manifests")
