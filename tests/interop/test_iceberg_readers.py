"""Iceberg readers on the metadata that commits write beside Paimon's: pyiceberg, DuckDB and, in the soak, Spark.

Java's own tables come first, so that the tests are right about what readers see before Dredge writes.
``DREDGE_ICEBERG_LIVES`` (default 60) is the number of random tables in the soak, ``DREDGE_ICEBERG_SEED`` the first
one's seed; a failure names its seed and the steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from tests.interop.iceberg_lives import (
    ALL_TYPES,
    IcebergLife,
    Java,
    iceberg_rows,
    live,
    metadata_folder,
    random_rows,
    types_of,
)
from tests.support.peers import IcebergReaders, IcebergSpark, JavaPaimon, java_paimon

pytestmark = pytest.mark.paimon_java
LIVES = int(os.environ.get("DREDGE_ICEBERG_LIVES", "60"))
FIRST = int(os.environ.get("DREDGE_ICEBERG_SEED", "1"))
STEPS = 8
VERSIONS = ("1.4.2", "2.0.0", "2.1-SNAPSHOT")


def create_of_all_types(java: Java, storage: str, **options: str) -> None:
    """Create a keyed table with a column of each type that Iceberg's format version 2 has."""
    schema = {
        "fields": [{"name": name, "type": kind} for name, kind in ALL_TYPES.items()],
        "primaryKeys": ["p", "k"],
        "partitionKeys": ["p"],
        "options": {"bucket": "1", "metadata.iceberg.storage": storage, **options},
    }
    java("create", schema=schema)


@pytest.mark.parametrize("storage", ["table-location", "hadoop-catalog"])
def test_readers_see_what_java_compacted(storage: str, tmp_path: Path, java: Java, iceberg: IcebergReaders) -> None:
    create_of_all_types(java, storage)
    types = types_of(tmp_path, "db.t")
    rows = random_rows(1, types, 40)
    java("write", rows=rows, compact="full")
    compacted = java("read")["rows"]
    java("write", rows=random_rows(2, types, 9), compact="none")
    folder = metadata_folder(tmp_path, "db.t", storage)
    assert iceberg_rows(iceberg.read(folder, reader="duckdb"), types) == iceberg_rows(compacted, types)
    del types["rows"]
    assert iceberg_rows(iceberg.read(folder), types) == iceberg_rows(compacted, types)
    state: dict[str, Any] = iceberg.describe(folder)
    assert state["current"] == 3 and state["format"] == 2


# -- random lives ----------------------------------------------------------------------------------------------------


def live_all(seeds: range, version: str, warehouse: Path, java: Java, readers: IcebergReaders, *writers: str) -> None:
    """Live the lives of the seeds; all are tried before a failure is raised."""
    Catalog(str(warehouse)).create_database("db", ignore_if_exists=True)
    failures = []
    for seed in seeds:
        life = IcebergLife(seed, warehouse, java, readers, writers, replaces_after_rollback=version.startswith("2.1"))
        try:
            live(life, STEPS)
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, f"{len(failures)} of {len(seeds)} tables failed:\n" + "\n\n".join(failures[:3])


def test_a_sample_of_random_tables(tmp_path: Path, java: Java, iceberg: IcebergReaders) -> None:
    for number, writers in enumerate([("java", "dredge"), ("dredge",)]):
        first = FIRST + number
        live_all(range(first, first + 1), java_paimon(), tmp_path, java, iceberg, *writers)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("writers", [("java",), ("java", "dredge"), ("dredge",)], ids="+".join)
def test_random_tables_at_every_step(
    writers: tuple[str, ...],
    version: str,
    tmp_path: Path,
    java_of: Callable[[str], JavaPaimon],
    iceberg: IcebergReaders,
) -> None:
    peer = java_of(version)

    def call(op: str, **arguments: Any) -> dict[str, Any]:
        return dict(peer.call(op, warehouse=str(tmp_path), **arguments))

    count = LIVES if "dredge" in writers else LIVES // 3
    share = -(-count // len(VERSIONS))
    first = FIRST + VERSIONS.index(version) * share
    live_all(range(first, first + share), version, tmp_path, call, iceberg, *writers)


# -- deletion vectors ------------------------------------------------------------------------------------------------

VECTORS = {"deletion-vectors.enabled": "true", "metadata.iceberg.storage": "table-location"}
VERSION_3 = VECTORS | {"deletion-vectors.bitmap64": "true", "metadata.iceberg.format-version": "3"}
FIELDS = [
    {"name": "p", "type": "INT NOT NULL"},
    {"name": "k", "type": "INT NOT NULL"},
    {"name": "a", "type": "STRING"},
    {"name": "n", "type": "TIMESTAMP(6)"},
]


def numbered_rows(count: int, text: str) -> list[dict[str, Any]]:
    """Return rows with the keys 0, 1 ... in both partitions."""
    moment = "2024-02-29T12:00:00.123456000"
    return [{"p": p, "k": k, "a": text, "n": moment} for p in (0, 1) for k in range(count)]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_spark_applies_javas_deletion_vectors_and_the_others_refuse_them(
    tmp_path: Path, java_of: Callable[[str], JavaPaimon], iceberg: IcebergReaders, iceberg_spark: IcebergSpark
) -> None:
    java = java_of("2.1-SNAPSHOT")

    def call(op: str, **arguments: Any) -> dict[str, Any]:
        return dict(java.call(op, warehouse=str(tmp_path), **arguments))

    for name, keys in (("db.keyed", ["p", "k"]), ("db.append", [])):
        options = {**VERSION_3, "bucket": "1" if keys else "-1"}
        schema = {"fields": FIELDS, "primaryKeys": keys, "partitionKeys": ["p"], "options": options}
        call("create", table=name, schema=schema)
        call("write", table=name, rows=numbered_rows(30, "a"), compact="full" if keys else "none")
        folder, types = tmp_path / "db.db" / name.removeprefix("db."), types_of(tmp_path, name)
        before = iceberg_rows(call("read", table=name)["rows"], types)
        for reader in ("pyiceberg", "duckdb"):  # version 3 without vectors
            assert iceberg_rows(iceberg.read(folder, reader=reader), types) == before
        assert iceberg_rows(iceberg_spark.read(folder), types) == before
        if keys:
            rows = [{"p": 0, "k": 1, "a": "b", "n": None}, {"_kind": "-D", "p": 0, "k": 2}]
            call("write", table=name, rows=rows, compact="minor")
        else:
            call("delete_rows", table=name, where=[["k", "<", 5]])
        merged = iceberg_rows(call("read", table=name)["rows"], types)
        assert iceberg_rows(iceberg_spark.read(folder), types) == merged != before
        table = Catalog(str(tmp_path)).table(name)
        table.delete([("k", "=", 9)])
        if keys:
            table.compact()
        shown = iceberg_rows(table.refresh().to_arrow(), types)
        assert iceberg_rows(iceberg_spark.read(folder), types) == shown != merged
        # Java goes on with the metadata of Dredge, row ids included.
        call("write", table=name, rows=numbered_rows(1, "j"), compact="minor" if keys else "none")
        assert iceberg_rows(iceberg_spark.read(folder), types) == iceberg_rows(call("read", table=name)["rows"], types)
        assert len(iceberg.describe(folder)["snapshots"]) > 3
        for reader in ("pyiceberg", "duckdb"):
            with pytest.raises(AssertionError, match="magic"):  # Paimon's index files are no Puffin files
                iceberg.read(folder, reader=reader)
