"""The same rows as tables of several writers (Dredge, Java, pyarrow's defaults), and fast copies of them."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench.data import SCHEMA, commits
from bench.data import rows as made_rows
from lsm_core import Catalog, Schema, Table
from lsm_core.commit import CommitMessage, Committer
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.metadata import manifests, snapshots

SOURCE = "source"
NEW_BUCKETS, NEW_COMMITS, NEW_ROWS = 4, 4, 50_000
"""Buckets of a compacted table, commits of new versions on level 0, and rows of each of these commits."""


def made(warehouse: Path, database: str, buckets: int) -> Table:
    """Create an empty table ``database.t`` with the schema of the benchmarks."""
    catalog = Catalog(str(warehouse))
    catalog.create_database(database, ignore_if_exists=True)
    options = {"bucket": str(buckets), "write-only": "true"}
    catalog.create_table(f"{database}.t", Schema(SCHEMA, primary_keys=["id"], options=options))
    return catalog.table(f"{database}.t")


def compacted_with_new_versions(warehouse: Path, database: str, rows: int, options: dict[str, str]) -> Table:
    """Create ``rows`` rows on the last level and :data:`NEW_COMMITS` of :data:`NEW_ROWS` new versions on level 0."""
    catalog = Catalog(str(warehouse))
    catalog.create_database(database)
    settings = {"bucket": str(NEW_BUCKETS), "write-only": "true", **options}
    table = catalog.create_table(f"{database}.t", Schema(SCHEMA, primary_keys=["id"], options=settings))
    table.write(made_rows(np.arange(rows, dtype=np.int64), 0))
    table.compact(full=True)
    random = np.random.default_rng(7)
    for commit in range(1, NEW_COMMITS + 1):
        table.write(made_rows(np.sort(random.choice(rows, NEW_ROWS, replace=False)), commit))
    return table


def written_by_dredge(warehouse: Path, rows: int, number: int, buckets: int, database: str = "dredge") -> Table:
    """Write ``number`` commits with Dredge."""
    table = made(warehouse, database, buckets)
    for data in commits(rows, number):
        table.write(data)
    return table


def written_by_java(warehouse: Path, rows: int, number: int, buckets: int, java: Any) -> Table:
    """Write the same commits with Java's writer, which reads them from an append table."""
    catalog = Catalog(str(warehouse))
    catalog.create_database(SOURCE, ignore_if_exists=True)
    catalog.create_table(f"{SOURCE}.t", Schema(SCHEMA, options={"bucket": "-1", "target-file-size": "1 gb"}))
    for data in commits(rows, number):
        catalog.table(f"{SOURCE}.t").write(data)
    table = made(warehouse, "java", buckets)
    java.call("bench_write", table="java.t", source=f"{SOURCE}.t", rows_per_commit=rows // number)
    shutil.rmtree(warehouse / f"{SOURCE}.db")
    return table


def written_by_pyarrow(warehouse: Path, source: Table, buckets: int) -> Table:
    """Rewrite each file of ``source`` with the defaults of `pyarrow.parquet`; commit them on level 0."""
    target = made(warehouse, "pyarrow", buckets)
    store, newest = source.store, snapshots.latest(source.store)
    assert newest is not None
    messages: dict[int, list[DataFileMeta]] = {}
    for entry in table_to_entries(manifests.live_entries(store, newest)):
        name = f"data-{uuid.uuid4()}-0.parquet"
        folder = Path(target.store.bucket_dir(entry.partition, entry.bucket))
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pq.read_table(store.data_path(entry.partition, entry.bucket, entry.file)), folder / name)
        size = (folder / name).stat().st_size
        messages.setdefault(entry.bucket, []).append(replace(entry.file, file_name=name, file_size=size))
    Committer(target.store).commit(
        [CommitMessage(b"\0" * 12, bucket, buckets, new_files=tuple(files)) for bucket, files in messages.items()]
    )
    return Catalog(str(warehouse)).table("pyarrow.t")


@contextmanager
def copied(warehouse: Path, database: str) -> Iterator[str]:
    """Yield a copy of a database for one round and delete it afterwards.

    Data files are linked, because no benchmark changes them; all other files are copied.
    """
    name = f"copy_{uuid.uuid4().hex[:8]}"
    folder = warehouse / f"{name}.db"
    shutil.copytree(warehouse / f"{database}.db", folder, copy_function=_copy)
    try:
        yield name
    finally:
        shutil.rmtree(folder)


def _copy(source: str, target: str) -> None:
    if "/bucket-" in source:
        os.link(source, target)
    else:
        shutil.copy2(source, target)
