"""Data files that Java puts under `data-file.external-paths`: read by the very names that it stores, and left by expiry, which says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.errors import UnsupportedFeature

Java = Callable[..., dict[str, Any]]


@pytest.mark.paimon_java
def test_files_in_escaped_partitions_are_read_and_expiry_tells_that_it_leaves_them(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, java: Java
) -> None:
    """The operator allows the folder for reading only."""
    outside = tmp_path_factory.mktemp("out side")
    catalog = Catalog(str(tmp_path), {"dredge.external-roots": f"{outside}:r"})
    catalog.create_database("db")
    options = {
        "bucket": "-1",
        "data-file.external-paths": f"file://{outside}",
        "data-file.external-paths.strategy": "round-robin",
    }
    fields = [{"name": "p", "type": "STRING"}, {"name": "v", "type": "INT"}]
    java("create", schema={"fields": fields, "partitionKeys": ["p"], "primaryKeys": [], "options": options})
    for value in (1, 2):
        java("write", rows=[{"p": "a:b/c%", "v": value}], compact="none")
    java("write", rows=[{"p": "a:b/c%", "v": 3}], overwrite={"partition": {"p": "a:b/c%"}}, compact="none")
    table = catalog.table("db.t")
    assert table.to_arrow().to_pylist() == [{"p": "a:b/c%", "v": 3}]
    files = {path: path.stat().st_size for path in outside.rglob("*.parquet")}
    assert len(files) == 3
    now = int(time.time() * 1000) + 1000
    report = table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=now)
    (left,) = [item for item in report.declined if item.reason == "outside"]
    live = java("files")["files"]
    replaced = [size for path, size in files.items() if path.name not in {file["name"] for file in live}]
    assert left.facts == {"files": 2, "size": sum(replaced)}
    table.sweep_trash(now_ms=now + 10**10)
    assert {path: path.stat().st_size for path in outside.rglob("*.parquet")} == files
    assert catalog.table("db.t").to_arrow().to_pylist() == [{"p": "a:b/c%", "v": 3}]
    with pytest.raises(UnsupportedFeature, match=f"'{outside}:r'.*DREDGE_EXTERNAL_ROOTS"):
        Catalog(str(tmp_path)).table("db.t").to_arrow()
