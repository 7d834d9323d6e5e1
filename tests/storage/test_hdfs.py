"""HDFS: addresses, names and errors against a double of the client, and a table in a small cluster."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.errors import CorruptFile, InvalidOption, StorageFull, StorageRefused, UnsupportedFeature
from lsm_core.storage import FileIO, Guarantee, file_io_for, hdfs_file_io, storage_options
from tests.support.emulators import StoreServer, hdfs_cluster

PLACE = "hdfs://name-node:8020"
SCHEMA = Schema(
    pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())]),
    primary_keys=["k"],
    options={"bucket": "1"},
)


class Double:
    """Client of a cluster in memory; ``failures`` are raised before or after a rename takes effect."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.failures: list[tuple[str, Exception]] = []
        self.inner = self

    def create(self, name: str, options: Any) -> Any:
        if name in self.files:
            raise FileExistsError(name)
        self.files[name] = b""

        def write(data: bytes) -> None:
            self.files[name] += data

        return SimpleNamespace(write=write, hsync=lambda: None, close=lambda: None)

    def get_file_info(self, name: str) -> Any:
        if name not in self.files:
            raise FileNotFoundError(name)
        return SimpleNamespace(path=name, length=len(self.files[name]), isdir=False, modification_time=1)

    def delete(self, name: str, recursive: bool) -> bool:
        return self.files.pop(name, None) is not None

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        moment, error = self.failures.pop(0) if self.failures else ("", OSError())
        if moment == "before":
            raise error
        if source not in self.files:
            raise FileNotFoundError(source)
        if target in self.files and not overwrite:
            raise FileExistsError(target)
        self.files[target] = self.files.pop(source)
        if moment == "after":
            raise error


@pytest.fixture
def double() -> Double:
    return Double()


@pytest.fixture
def io(double: Double) -> FileIO:
    made = hdfs_file_io.HdfsFileIO(PLACE)
    made._client = double
    return made


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_addresses_name_a_cluster_and_hold_no_keys() -> None:
    io, root = file_io_for("HDFS://name-node:8020//house/", {"hadoop-conf-dir": "/etc/hadoop", "other": "x"})
    assert (root, io.guarantee) == (f"{PLACE}/house", Guarantee.EXCLUSIVE_RENAME)
    assert storage_options(io) == {"hadoop-conf-dir": "/etc/hadoop"}
    assert pickle.loads(pickle.dumps(io)) == io != file_io_for(root)[0]
    for odd in ("hdfs:///house", "hdfs://", "hdfs://u:hush@name-node/x", "hdfs://name-node/../x"):
        with pytest.raises(InvalidOption, match=r"hdfs://(name-node:8020/folder|\*\*\*)") as caught:
            file_io_for(odd)
        assert "hush" not in str(caught.value)
    with pytest.raises(UnsupportedFeature, match="'viewfs' storage"):
        file_io_for("viewfs://cluster/house")


@pytest.mark.parametrize("path", ["hdfs://elsewhere:8020/x", "hdfs://name-node/x", "/x", "s3://name-node:8020/x"])
def test_files_of_another_cluster_are_refused(io: FileIO, path: str) -> None:
    with pytest.raises(CorruptFile, match=r"is not in hdfs://name-node:8020"):
        io.read_bytes(path)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(UnsupportedFeature, match=r"pip install 'dredge\[hdfs\]'"):
        file_io_for(f"{PLACE}/house")


_CONFIGURATION = "<configuration><property><name>{}</name><value>{}</value></property></configuration>"


def test_a_catalog_server_names_no_cluster_that_the_operator_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        StorageRefused, match=r"known: none\); set the catalog option fs\.defaultFS, or hadoop-conf-dir"
    ):
        file_io_for("hdfs://evil:8020/t", from_server=True)
    options = {"fs.defaultFS": "hdfs://name-node:8020/", "hadoop-conf-dir": str(tmp_path)}
    (tmp_path / "core-site.xml").write_text(_CONFIGURATION.format("fs.defaultFS", "hdfs://other"))
    (tmp_path / "hdfs-site.xml").write_text(_CONFIGURATION.format("dfs.nameservices", "prod, dr"))
    for place in ("hdfs://name-node:8020", "hdfs://other", "hdfs://prod", "hdfs://dr"):
        assert file_io_for(f"{place}/t", options, from_server=True)[1] == f"{place}/t"
    with pytest.raises(StorageRefused, match="known: hdfs://dr, hdfs://name-node:8020, hdfs://other, hdfs://prod"):
        file_io_for("hdfs://name-node:9000/t", options, from_server=True)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert file_io_for("hdfs://prod/t", from_server=True)[1] == "hdfs://prod/t"
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(InvalidOption, match=r"hadoop-conf-dir.*a valid core-site\.xml"):
        file_io_for("hdfs://prod/t", from_server=True)


# -- publishing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OSError, RuntimeError])
def test_a_rename_whose_answer_was_lost_is_known_by_its_draft(
    io: FileIO, double: Double, kind: type[Exception]
) -> None:
    path = f"{PLACE}/t/snapshot-1"
    double.failures = [("after", kind("connection reset"))]
    assert io.write_exclusive(path, b"mine")
    double.failures = [("before", kind("connection reset"))]
    with pytest.raises(OSError, match="HDFS does not answer correctly: connection reset"):
        io.write_exclusive(f"{PLACE}/t/snapshot-2", b"mine")
    assert double.files == {"/t/snapshot-1": b"mine"}  # no draft is left


def test_a_rename_that_the_library_repeated_is_known_by_its_draft(io: FileIO, double: Double) -> None:
    for number, kind in enumerate((FileNotFoundError, FileExistsError)):
        double.failures = [("after", kind("repeated"))]
        assert io.write_exclusive(f"{PLACE}/t/snapshot-{number}", b"mine")
        assert not io.write_exclusive(f"{PLACE}/t/snapshot-{number}", b"other's")
    assert set(double.files.values()) == {b"mine"}


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            'RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied\\n\\tat x")',
            StorageRefused,
        ),
        ('RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "in safe mode")', StorageRefused),
        ('RPCError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "quota")', StorageFull),
        ('RPCError("org.apache.hadoop.fs.ParentNotDirectoryException", "/x is a file")', CorruptFile),
        ('RPCError("java.io.IOException", "something else")', OSError),
    ],
)
def test_errors_of_the_name_node_are_ours_on_one_line(
    io: FileIO, double: Double, message: str, kind: type[Exception]
) -> None:
    double.failures = [("before", RuntimeError(message))]
    with pytest.raises(kind) as caught:
        io.overwrite(f"{PLACE}/t/LATEST", b"1")
    assert "\\n" not in str(caught.value)
    assert "\tat" not in str(caught.value)
    assert double.files == {}


# -- a cluster ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.mark.soak
def test_a_table_lives_in_a_cluster(cluster: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(cluster.folder())
    table = catalog.create_table("db.t", SCHEMA, create_database=True)
    for number in range(3):
        table.write([{"k": key, "v": f"{number}"} for key in range(number, 5)])
    table.compact(full=True)
    table = table.refresh()
    assert table.to_arrow().sort_by("k")["v"].to_pylist() == ["0", "1", "2", "2", "2"]
    catalog.rename_table("db.t", "db.u")
    moved = catalog.table("db.u")
    moved.rollback_to(1)
    assert set(catalog.table("db.u").to_arrow()["v"].to_pylist()) == {"0"}
    catalog.drop_table("db.u")
    assert catalog.list_tables("db") == []


@pytest.mark.soak
def test_forbidden_folders_and_unreachable_clusters_are_one_line(
    cluster: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    io, root = file_io_for(cluster.folder())
    io.overwrite(f"{root}/x", b"1")
    monkeypatch.setenv("HADOOP_USER_NAME", "mallory")
    stranger, _ = file_io_for(root)
    for change in (
        lambda: stranger.write_exclusive(f"{root}/y", b""),
        lambda: stranger.delete(f"{root}/x"),
        lambda: stranger.delete_dir(root),
        lambda: stranger.rename(f"{root}/x", f"{root}/y"),
    ):
        with pytest.raises(StorageRefused, match="AccessControlException: Permission denied: user=mallory"):
            change()
    assert io.read_bytes(f"{root}/x") == b"1"
    monkeypatch.setitem(hdfs_file_io._PATIENCE, "dfs.client.failover.max.attempts", "1")
    with pytest.raises(OSError, match="HDFS does not answer correctly"):
        file_io_for("hdfs://127.0.0.1:1/house")[0].list_dir("hdfs://127.0.0.1:1/house")


_FORKED = """
import os, sys
from lsm_core import errors
from lsm_core.storage import file_io_for
io, root = file_io_for(sys.argv[1])
io.list_dir(root)
if os.fork() == 0:
    try:
        io.list_dir(root)
    except errors.StorageRefused as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.soak
def test_a_forked_process_is_told_so(cluster: StoreServer) -> None:
    command = [sys.executable, "-c", _FORKED, cluster.folder()]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=os.environ).stdout
    assert "forked from one that used HDFS" in output
