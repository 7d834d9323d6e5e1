"""Orphan files of one dirty table: Java and Dredge take the same, and each reads the table after the other has cleaned it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.maintenance import DeleteItem
from lsm_core.options import ALLOWED_PLACES
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
DAY = 86_400
FIELDS = [{"name": "k", "type": "INT NOT NULL"}, {"name": "p", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}]
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "changelog": (["k", "p"], {"bucket": "1", "changelog-producer": "lookup", "changelog.num-retained.min": "20",
                               "snapshot.num-retained.min": "1", "file-index.bloom-filter.columns": "v",
                               "file-index.in-manifest-threshold": "1 b"}),
    "vectors": (["k", "p"], {"bucket": "-1", "deletion-vectors.enabled": "true"}),
    "external": ([], {"bucket": "-1", "data-file.external-paths.strategy": "round-robin"}),
}  # fmt: skip
UUID = "4f5d7a0e-5b1c-4c5f-9d3a-0123456789ab"


def dirty(java: Java, root: Path, kind: str) -> None:
    """Commits, compactions, a tag, a branch and its commit, expiry, and a rollback, which leaves files behind; then dirt of every kind."""
    keys, options = KINDS[kind]
    if kind == "external":
        options = {**options, "data-file.external-paths": f"file://{root.parent.parent}/external/t"}
    schema = {"fields": FIELDS, "partitionKeys": ["p"], "primaryKeys": keys, "options": options}
    java("create", schema=schema)
    for number in range(6):
        java("write", rows=[{"k": k, "p": k % 2, "v": number} for k in range(number, number + 6)], compact="none")
        if number % 2 and keys:
            java("compact", full=True)
    java("analyze")
    java("tag", name="keep", snapshot=4)
    java("branch", name="dev", tag="keep")
    java("write", table="db.t$branch_dev", rows=[{"k": 77, "p": 1, "v": 7}], compact="none")
    java("expire_snapshots", retain_max=5, retain_min=5, older_than_ms=int(time.time() * 1000) + 1000)
    newest = max(snapshot["id"] for snapshot in java("snapshots")["snapshots"])
    java("rollback", snapshot=newest - 2)
    for name in (
        f"p=0/bucket-0/data-{UUID}-0.parquet",
        f"p=0/bucket-0/data-{UUID}-0.parquet.index",
        f"p=5/bucket-3/changelog-{UUID}-1.parquet",
        f"manifest/manifest-{UUID}-0",
        f"manifest/manifest-list-{UUID}-0",
        f"manifest/index-manifest-{UUID}-0",
        f"index/index-{UUID}-0",
        f"statistics/stats-{UUID}-0",
        f"snapshot/.snapshot-9.{UUID}.tmp",
        "p=0/bucket-0/notes.txt",
        "other/data-1.parquet",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    long_ago = time.time() - 3 * DAY
    for path in [*root.rglob("*"), *(root.parent.parent / "external").rglob("*")]:
        os.utime(path, (long_ago, long_ago))
    young = root / "p=0" / "bucket-0" / f"data-{UUID}-9.parquet"
    young.write_text("young")


def rows(read: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return sorted((row["k"], row["p"], row["v"]) for row in read)


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", one_in(2, KINDS))
def test_both_take_the_same_files_and_read_what_the_other_leaves(
    tmp_path: Path, java: Java, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOWED_PLACES, str(tmp_path / "external"))
    root = tmp_path / "db.db" / "t"
    Catalog(tmp_path).create_database("db")
    dirty(java, root, kind)
    table = Catalog(tmp_path).table("db.t")
    before = table.to_arrow().sort_by("k").to_pylist()
    direct = table.copy({"dredge.delete-mode": "direct"})
    plan = direct.plan_maintenance("orphans", max_share=90)
    ours = {Path(item.path).name for item in plan.items_of(DeleteItem)}
    theirs = set(java("remove_orphans", dry_run=True)["files"])
    assert theirs - ours == {"notes.txt"}, "what has no name of Paimon's stays with us"
    assert ours - theirs == set()
    rolled_back = {name for name in ours if UUID not in name}
    assert len(rolled_back) >= 6
    untouched = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-copy")
    assert direct.apply(plan).files_deleted == len(ours)
    assert java("remove_orphans", dry_run=True)["files"] == ["notes.txt"]
    for name in ("db.t", "db.t$branch_dev"):
        assert rows(java("read", table=name)["rows"]) == rows(Catalog(tmp_path).table(name).to_arrow().to_pylist())
    assert rows(java("read", options={"scan.tag-name": "keep"})["rows"]) == rows(table.to_arrow(tag="keep").to_pylist())
    assert table.to_arrow().sort_by("k").to_pylist() == before
    java("write", rows=[{"k": 1, "p": 1, "v": 100}], compact="none")
    if kind == "external":
        return  # the copy names the files of the original
    java("remove_orphans", warehouse=str(untouched))
    copied = Catalog(untouched).table("db.t")
    assert copied.to_arrow().sort_by("k").to_pylist() == before
    assert not copied.plan_maintenance("orphans").items
