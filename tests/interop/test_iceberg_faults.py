"""Iceberg metadata after faults and races: the next commit, of Dredge or of Java, lets readers see the truth again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog, Table
from lsm_core.iceberg import writing
from tests.interop.iceberg_lives import Java, iceberg_rows, types_of
from tests.interop.values import table_of
from tests.support.peers import IcebergReaders, refusal_of

pytestmark = pytest.mark.paimon_java
FIELDS = [{"name": "k", "type": "INT NOT NULL"}, {"name": "a", "type": "STRING"}]
OPTIONS = {"bucket": "-1", "metadata.iceberg.storage": "table-location"}


class Faulty:
    """A table without a key, all of whose rows Iceberg readers see."""

    def __init__(self, warehouse: Path, java: Java, readers: IcebergReaders) -> None:
        self.warehouse, self.java, self.readers = warehouse, java, readers
        self.folder = warehouse / "db.db" / "t"
        self.metadata = self.folder / "metadata"
        java("create", schema={"fields": FIELDS, "primaryKeys": [], "partitionKeys": [], "options": OPTIONS})
        self.number = 0

    @property
    def table(self) -> Table:
        """The table, opened again."""
        return Catalog(str(self.warehouse)).table("db.t")

    def write(self, who: str) -> None:
        """Append a row."""
        row = {"k": self.number, "a": who}
        self.number += 1
        if who == "java":
            self.java("write", rows=[row], compact="none")
        else:
            self.table.write(table_of([row], types_of(self.warehouse, "db.t")))

    def is_true(self) -> bool:
        """Whether pyiceberg sees the newest snapshot, with all rows of the table."""
        types = types_of(self.warehouse, "db.t")
        latest = self.table.latest_snapshot()
        assert latest is not None
        rows = iceberg_rows(self.readers.read(self.folder), types)
        truth = rows == iceberg_rows(self.table.to_arrow(), types)
        return truth and self.readers.describe(self.folder)["current"] == latest.id

    def newest_metadata(self) -> Path:
        """The file of the newest metadata."""
        return max(self.metadata.glob("v*.metadata.json"), key=lambda file: int(file.name[1:].split(".")[0]))


def _nothing(faulty: Faulty) -> None:
    """The process was killed after the commit: a snapshot has no metadata."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(writing, "publish_commit", lambda *_: None)
        faulty.write("dredge")


def _half(faulty: Faulty) -> None:
    file = faulty.newest_metadata()
    file.write_text(file.read_text()[:700])


def _no_hint(faulty: Faulty) -> None:
    (faulty.metadata / "version-hint.text").unlink()


def _old_hint(faulty: Faulty) -> None:
    (faulty.metadata / "version-hint.text").write_text("1")


def _no_manifest(faulty: Faulty) -> None:
    state = faulty.readers.describe(faulty.folder)
    Path(state["snapshots"][-1]["manifests"][0]["path"]).unlink()


def _no_list(faulty: Faulty) -> None:
    Path(faulty.readers.describe(faulty.folder)["snapshots"][-1]["list"]).unlink()


FAULTS: tuple[Callable[[Faulty], None], ...] = (_nothing, _half, _no_hint, _old_hint, _no_manifest, _no_list)
NEEDS_DREDGE = (_half, _no_manifest, _no_list)
"""Faults after which Java's commits fail, or go on with metadata that nobody can read."""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_next_commit_makes_the_metadata_true(
    fault: Callable[[Faulty], None], tmp_path: Path, java: Java, iceberg: IcebergReaders
) -> None:
    faulty = Faulty(tmp_path, java, iceberg)
    for who in ("java", "dredge", "dredge"):
        faulty.write(who)
    assert faulty.is_true()
    uuid = iceberg.describe(faulty.folder)["uuid"]
    fault(faulty)
    if fault is _nothing:  # readers see the state before
        assert iceberg.describe(faulty.folder)["current"] == 3
        assert iceberg.read(faulty.folder).num_rows == 3
    faulty.write("dredge")
    assert faulty.is_true()
    assert iceberg.describe(faulty.folder)["uuid"] == uuid
    # Java finds what Dredge made as its own, and goes on with it.
    before = {snapshot["list"] for snapshot in iceberg.describe(faulty.folder)["snapshots"]}
    faulty.write("java")
    state = iceberg.describe(faulty.folder)
    assert faulty.is_true() and state["uuid"] == uuid
    assert before <= {snapshot["list"] for snapshot in state["snapshots"]}


@pytest.mark.parametrize("fault", FAULTS)
def test_javas_next_commit_after_a_fault(
    fault: Callable[[Faulty], None], tmp_path: Path, java: Java, iceberg: IcebergReaders
) -> None:
    faulty = Faulty(tmp_path, java, iceberg)
    for who in ("java", "dredge", "dredge"):
        faulty.write(who)
    fault(faulty)
    refusal = refusal_of(lambda: faulty.write("java"))
    if fault in NEEDS_DREDGE:
        assert refusal or refusal_of_readers(faulty)
        faulty.write("dredge")
    else:
        assert not refusal
    assert faulty.is_true()


def refusal_of_readers(faulty: Faulty) -> str:
    """Return why pyiceberg cannot read the table, or ""."""
    try:
        faulty.readers.read(faulty.folder)
    except AssertionError as error:
        return str(error)
    return ""


WRITER = """
import sys
from lsm_core import Catalog
import pyarrow as pa
table = Catalog(sys.argv[1]).table("db.t")
first = int(sys.argv[2])
for number in range(first, first + 12):
    table.refresh().write(pa.table({"k": pa.array([number], pa.int32()), "a": [sys.argv[2]]}))
"""


@pytest.mark.soak
def test_two_processes_and_java_commit_at_the_same_time(tmp_path: Path, java: Java, iceberg: IcebergReaders) -> None:
    faulty = Faulty(tmp_path, java, iceberg)
    faulty.write("java")
    uuid = iceberg.describe(faulty.folder)["uuid"]
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    processes: list[Any] = [subprocess.Popen([*command, str(first)]) for first in (1000, 2000)]
    refusals = [refusal_of(lambda: faulty.write("java")) for _ in range(12)]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    assert len(faulty.table.to_arrow()) == 1 + 24 + 12 - sum(map(bool, refusals))
    # The metadata of the newest snapshot may be written by a writer that another one overtook.
    faulty.write("dredge")
    assert faulty.is_true()
    state = iceberg.describe(faulty.folder)
    print(f"refusals of Java: {list(filter(None, refusals))}, UUID kept: {state['uuid'] == uuid}")
    for snapshot in state["snapshots"]:
        rows = iceberg_rows(iceberg.read(faulty.folder, snapshot_id=snapshot["id"]), types_of(tmp_path, "db.t"))
        expected = faulty.table.to_arrow(snapshot_id=snapshot["id"])
        assert rows == iceberg_rows(expected, types_of(tmp_path, "db.t"))
