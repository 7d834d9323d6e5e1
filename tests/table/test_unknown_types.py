"""A column of a type that a newer version of Paimon adds: the column is unsupported by name, and the table otherwise goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.errors import UnsupportedFeature
from lsm_core.metadata.support import Purpose, unsupported
from tests.maintenance.tables import keyed, rows

TYPES = ["GEOMETRY(OGC:CRS84)", "GEOGRAPHY(OGC:CRS84, spherical)", "HYPERLOGLOG(12)", {"type": "GRAPH", "edges": "INT"}]


def with_column(tmp_path: Path, kind: Any, **options: str) -> Table:
    """A table of two commits, to which another engine then added the column `g`."""
    table = keyed(tmp_path, **options)
    for number in range(3):
        table.write(rows(range(4), v=number))
    folder = Path(table.store.root) / "schema"
    schema = json.loads((folder / "schema-0").read_text())
    schema["fields"].append({"id": schema["highestFieldId"] + 1, "name": "g", "type": kind})
    schema |= {"id": 1, "highestFieldId": schema["highestFieldId"] + 1}
    (folder / "schema-1").write_text(json.dumps(schema))
    return table.refresh()


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_all_but_the_column_goes_on(tmp_path: Path, kind: Any) -> None:
    table = with_column(tmp_path, kind)
    wanted = [2, 3, 4, 5]
    assert sorted(table.to_arrow(columns=["v"], filter="k >= 0").column("v").to_pylist()) == wanted
    assert table.lookup(pa.table({"k": [1]}), columns=["v"]).column("v").to_pylist() == [3]
    assert table.incremental(2, 3, columns=["v"]).num_rows == 4
    table.create_tag("t", 1)
    table.health()
    table.remove_orphan_files()
    assert [report.text for report in table.check() if not report.passed and "column 'g'" not in report.text] == []
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=table.store.clock.now_ms() + 1)
    table.delete_tag("t")
    assert sorted(table.to_arrow(columns=["v"]).column("v").to_pylist()) == wanted


@pytest.mark.parametrize(
    "act",
    [
        lambda table: table.to_arrow(),
        lambda table: table.to_arrow(columns=["k", "g"]),
        lambda table: table.to_arrow(columns=["v"], filter="g IS NULL"),
        lambda table: table.lookup(pa.table({"k": [1]})),
        lambda table: table.new_stream_scan(),
        lambda table: table.write(rows(range(2))),
        lambda table: table.compact(full=True),
        lambda table: table.plan_maintenance("compact"),
        lambda table: table.plan_maintenance("rescale", bucket_num=2),
        lambda table: table.delete("k = 1"),
        lambda table: table.analyze(),
    ],
)
def test_what_needs_the_column_declines_by_name(tmp_path: Path, act: Callable[[Table], object]) -> None:
    table = with_column(tmp_path, "GEOMETRY(OGC:CRS84)")
    with pytest.raises(UnsupportedFeature, match=r"column 'g' of type GEOMETRY\(OGC:CRS84\)"):
        act(table)
    assert unsupported(table.store, Purpose.COMPACT) == ["column 'g' of type GEOMETRY(OGC:CRS84)"]


def test_a_column_that_a_merge_looks_at_is_always_needed(tmp_path: Path) -> None:
    options = {"merge_engine": "partial-update", "fields__s__sequence-group": "v"}
    table = with_column(tmp_path, "HYPERLOGLOG", **options)
    path = Path(table.store.root) / "schema" / "schema-1"
    path.write_text(path.read_text().replace("fields.s.sequence-group", "fields.g.sequence-group"))
    with pytest.raises(UnsupportedFeature, match="column 'g'"):
        table.refresh().to_arrow(columns=["v"])
