"""Files outside a table's folder that the table does not declare, as Java's `import_files` leaves them: refused by name when they are opened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.cli.app import run
from lsm_core.errors import UnsupportedFeature
from lsm_core.metadata import manifests
from tests.maintenance.tables import keyed, rows


def imported(tmp_path: Path) -> Table:
    """A table of one file that was moved to another folder, with an entry that names it there."""
    table = keyed(tmp_path)
    table.write(rows(range(4)))
    store, snapshot = table.store, table.latest_snapshot()
    assert snapshot is not None
    entries = manifests.live_entries(store, snapshot)
    names = entries.column("file_name").to_pylist()
    (tmp_path / "elsewhere").mkdir()
    for name in names:
        shutil.move(f"{store.root}/bucket-0/{name}", tmp_path / "elsewhere" / name)
    places = pa.array([f"file:{tmp_path}/elsewhere/{name}" for name in names])
    at = entries.schema.get_field_index("external_path")
    base, size = manifests.write_list(store, [])
    delta = manifests.write_list(
        store, manifests.write_manifests(store, entries.set_column(at, entries.schema.field(at), places))
    )
    moved = replace(
        snapshot,
        base_manifest_list=base,
        base_manifest_list_size=size,
        delta_manifest_list=delta[0],
        delta_manifest_list_size=delta[1],
    )
    Path(store.snapshot_path(snapshot.id)).write_bytes(moved.to_json())
    return table.refresh()


@pytest.mark.parametrize(
    "act",
    [
        lambda table: table.to_arrow(),
        lambda table: table.lookup(pa.table({"k": [1]})),
        lambda table: table.plan_maintenance("compact", full=True),
        lambda table: table.plan_maintenance("rescale", bucket_num=2),
        lambda table: table.delete("k = 1"),
    ],
)
def test_undeclared_files_are_refused_by_name(tmp_path: Path, act: Callable[[Table], object]) -> None:
    with pytest.raises(UnsupportedFeature, match=r"outside its folder, which 'data-file\.external-paths' does not"):
        act(imported(tmp_path))


def test_status_and_checks_name_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = imported(tmp_path)
    assert run(["status", "-w", str(tmp_path / "wh"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["error"] is None
    assert len(row["cannot"]) == 1
    assert "data files outside its folder" in row["cannot"][0]
    assert [report.check + report.text for report in table.check() if "corrupt" in report.text] == []
