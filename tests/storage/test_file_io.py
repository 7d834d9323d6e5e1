"""What every FileIO promises, asked of each: local disks, the wrapper that injects faults, and an object store behind a real server."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core.commit.attempt import RecordingFileIO
from lsm_core.errors import UnsupportedFeature
from lsm_core.storage import (
    FaultyFileIO,
    FileIO,
    FileStatus,
    Guarantee,
    LocalFileIO,
    OutputFile,
    delete_files,
    file_io_for,
)
from tests.support.emulators import StoreServer, azurite, hdfs_cluster
from tests.support.s3_server import PROVIDER_KEYS, S3Server

OTHER_STORES = ("oss", "oss-locked", "obs", "cosn", "gs")
"""Stores that share S3's code or, for Google, an interface like S3's."""
EMULATED = ("abfss", "hdfs")
"""Stores with a server of their own, see tests/support/emulators.py."""
KINDS = (
    *("local", "faulty", "recording", "s3"),
    *(pytest.param(kind, marks=pytest.mark.soak) for kind in (*OTHER_STORES, *EMULATED)),
)
GUARANTEES = {"s3": Guarantee.CONDITIONAL_PUT, "oss": Guarantee.CONDITIONAL_PUT, "cosn": Guarantee.CONDITIONAL_PUT}
GUARANTEES |= {"oss-locked": Guarantee.NONE, "obs": Guarantee.NONE, "hdfs": Guarantee.EXCLUSIVE_RENAME}
GUARANTEES |= {"abfss": Guarantee.CONDITIONAL_PUT, "gs": Guarantee.CONDITIONAL_PUT}


class Place(NamedTuple):
    kind: str
    io: FileIO
    root: str


@pytest.fixture(scope="module")
def abfss(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    kind = request.param
    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return Place(kind, *file_io_for(f"{server.bucket()}/house", server.options))
    if kind in EMULATED:
        emulator: StoreServer = request.getfixturevalue(kind)
        for name, value in emulator.environment.items():
            monkeypatch.setenv(name, value)
        return Place(kind, *file_io_for(emulator.folder(), emulator.options))
    if kind in OTHER_STORES:
        for name, value in PROVIDER_KEYS.items():
            monkeypatch.setenv(name, value)
        server, scheme = request.getfixturevalue("s3"), kind.removesuffix("-locked")
        if kind == "gs":
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.endpoint)
            return Place(kind, *file_io_for(f"{server.bucket(scheme)}/house"))
        mode = "forbid-overwrite" if kind in ("oss", "cosn") else ""
        return Place(kind, *file_io_for(f"{server.bucket(scheme)}/house", server.provider_options(scheme, mode)))
    local = LocalFileIO()
    wrapped: FileIO = {"local": local, "faulty": FaultyFileIO(local), "recording": RecordingFileIO(local)}[kind]
    return Place(kind, wrapped, str(tmp_path))


def names(place: Place, folder: str = "") -> list[str]:
    return [status.name for status in place.io.list_dir(f"{place.root}/{folder}".rstrip("/"))]


def test_it_keeps_the_protocol_and_names_its_guarantee(place: Place) -> None:
    assert isinstance(place.io, FileIO)
    assert place.io.guarantee is GUARANTEES.get(place.kind, Guarantee.EXCLUSIVE_CREATE)


def test_it_travels_between_processes_with_all_that_it_needs(place: Place) -> None:
    place.io.overwrite(f"{place.root}/x", b"1")
    there = pickle.loads(pickle.dumps(place.io))
    assert there.read_bytes(f"{place.root}/x") == b"1"


def test_a_new_file_creates_its_parents_and_never_replaces_another(place: Place) -> None:
    path = f"{place.root}/a/b/x"
    with place.io.open_output(path) as out:
        assert isinstance(out, OutputFile)
        assert out.write(b"abc") == 3
        assert out.write(memoryview(b"de")) == 2
        assert out.tell() == 5
        assert not out.closed
    assert out.closed
    assert (place.io.read_bytes(path), place.io.size(path), place.io.exists(path)) == (b"abcde", 5, True)
    for size in (1, 9 << 20):  # an object store sends the large one in parts
        with pytest.raises(FileExistsError), place.io.open_output(path) as out:
            out.write(b"x" * size)
        assert place.io.read_bytes(path) == b"abcde"


@pytest.mark.parametrize("name", ["dt=a%2Fb", "with space", "ünï", "a=1,b=2+c", "#half?"])
def test_names_are_taken_as_they_are(place: Place, name: str) -> None:
    path = f"{place.root}/{name}/{name}"
    place.io.overwrite(path, b"x")
    assert names(place) == [name]
    assert [(status.path, status.size) for status in place.io.list_dir(f"{place.root}/{name}")] == [(path, 1)]
    assert place.io.read_bytes(path) == b"x"
    assert place.io.delete(path)
    assert not place.io.exists(path)


def test_parquet_writes_to_and_reads_from_it_in_parts(place: Place) -> None:
    numbers = pa.array(range(1_500_000), pa.int64())
    table = pa.table({"a": numbers, "b": pa.array(["x"] * len(numbers))})
    path = f"{place.root}/t.parquet"
    with place.io.open_output(path) as out:  # 12 MB: more than one part of an upload
        pq.write_table(table, out, compression="none", use_dictionary=["b"])
    assert out.tell() == place.io.size(path)
    with place.io.open_input(path) as source:
        assert source.size() == out.tell()
        assert pq.read_table(source).equals(table)


def test_any_part_of_a_file_can_be_read(place: Place) -> None:
    data = bytes(range(256)) * 8192  # 2 MiB
    path = f"{place.root}/x"
    place.io.overwrite(path, data)
    with place.io.open_input(path) as source:
        for start, length in ((0, 10), (1_000_000, 7), (500_000, 300_000), (len(data) - 5, 5), (len(data) - 3, 10)):
            source.seek(start)
            assert source.read(length) == data[start : start + length]
        assert source.read_at(4, 300_000) == data[300_000:300_004]
        source.seek(0)
        assert source.read() == data


def test_empty_files_are_files(place: Place) -> None:
    path = f"{place.root}/none"
    place.io.open_output(path).close()
    assert (place.io.size(path), place.io.read_bytes(path)) == (0, b"")
    with place.io.open_input(path) as source:
        assert (source.size(), source.read()) == (0, b"")


@pytest.mark.parametrize("size", [4, 20 << 20])
def test_an_exception_while_writing_removes_the_file(place: Place, size: int) -> None:
    with pytest.raises(ValueError, match="stop"), place.io.open_output(f"{place.root}/x") as out:
        for _ in range(4):
            out.write(b"p" * (size // 4))
        raise ValueError("stop")
    assert not place.io.exists(f"{place.root}/x")
    kept = place.io.open_output(f"{place.root}/kept")
    kept.close()
    kept.abort()
    assert names(place) == ["kept"]


def test_exclusive_creation_is_refused_for_a_taken_name_and_leaves_no_draft(place: Place) -> None:
    path = f"{place.root}/snapshot/snapshot-1"
    assert place.io.write_exclusive(path, b"first")
    assert not place.io.write_exclusive(path, b"second")
    assert not place.io.write_exclusive(path, b"first")  # the same bytes are another's too
    assert place.io.read_bytes(path) == b"first"
    assert names(place, "snapshot") == ["snapshot-1"]


def test_of_many_writers_exactly_one_creates_the_file(place: Place) -> None:
    if place.io.guarantee is Guarantee.NONE:
        return  # commits need a lock, which test_provider_stores asks for
    with ThreadPoolExecutor(4) as pool:
        for attempt in range(5):
            path = f"{place.root}/snapshot-{attempt}"
            won = list(pool.map(lambda who, path=path: place.io.write_exclusive(path, b"%d" % who), range(4)))
            assert sum(won) == 1
            assert place.io.read_bytes(path) == b"%d" % won.index(True)


def test_overwriting_replaces_at_once(place: Place) -> None:
    path = f"{place.root}/LATEST"
    place.io.overwrite(path, b"1")
    place.io.overwrite(path, b"22", durable=False)
    assert place.io.read_bytes(path) == b"22"
    assert names(place) == ["LATEST"]


def test_absent_things_are_told_apart_from_errors(place: Place) -> None:
    none = f"{place.root}/none"
    assert place.io.list_dir(none) == []
    assert not place.io.exists(none)
    assert not place.io.delete(none)
    assert not place.io.delete_dir(none)
    for ask in (place.io.read_bytes, place.io.open_input, place.io.size):
        with pytest.raises(FileNotFoundError):
            ask(none)


def test_listing_tells_names_sizes_and_kinds(place: Place) -> None:
    place.io.overwrite(f"{place.root}/b", b"12")
    place.io.overwrite(f"{place.root}/a/below/it", b"")
    place.io.overwrite(f"{place.root}/a.txt", b"")
    found = place.io.list_dir(place.root)
    assert [(item.name, item.is_dir) for item in found] == [("a", True), ("a.txt", False), ("b", False)]
    assert found[2] == FileStatus(f"{place.root}/b", "b", 2, found[2].mtime_ms, is_dir=False)
    assert abs(found[2].mtime_ms - found[1].mtime_ms) < 60_000 < found[2].mtime_ms
    assert place.io.exists(f"{place.root}/a/below")


def test_more_files_than_a_page_of_a_listing_are_all_told_and_removed(place: Place) -> None:
    made = sorted(str(uuid.uuid4()) for _ in range(230))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: place.io.overwrite(f"{place.root}/many/{name}", b"", durable=False), made))
    place.io.overwrite(f"{place.root}/many-more", b"")
    assert names(place, "many") == made
    assert place.io.delete_dir(f"{place.root}/many")
    assert not place.io.exists(f"{place.root}/many")
    assert names(place) == ["many-more"]


def test_many_files_are_deleted_together_and_each_told(place: Place) -> None:
    made = [f"{place.root}/{folder}/{number}" for folder in ("a", "b%2F") for number in range(12)]
    for path in made:
        place.io.overwrite(path, b"1", durable=False)
    asked = [made[0], f"{place.root}/a/none", *made[12:], f"{place.root}/nowhere/none", made[3]]
    assert list(delete_files(place.io, asked)) == [True, False, *[True] * 12, False, True]
    assert [path for path in made if place.io.exists(path)] == [path for path in made[:12] if path not in asked]
    assert list(delete_files(place.io, [])) == []


def test_an_empty_folder_is_seen_until_it_is_deleted(place: Place) -> None:
    folder = f"{place.root}/sales.db"
    place.io.mkdirs(folder)
    place.io.mkdirs(folder)
    assert place.io.exists(folder)
    assert [(status.name, status.is_dir) for status in place.io.list_dir(place.root)] == [("sales.db", True)]
    assert place.io.list_dir(folder) == []
    assert place.io.delete_dir(folder)
    assert not place.io.exists(folder)


def test_renaming_never_replaces_and_is_refused_where_it_would_be_copying(place: Place) -> None:
    for name in ("a", "b", "d/x"):
        place.io.overwrite(f"{place.root}/{name}", b"1")
    if place.kind in ("s3", "abfss", *OTHER_STORES):
        with pytest.raises(UnsupportedFeature, match=f"renaming in an object store.*{place.root}/d"):
            place.io.rename(f"{place.root}/d", f"{place.root}/e")
        assert names(place) == ["a", "b", "d"]
        return
    assert not place.io.rename(f"{place.root}/none", f"{place.root}/other")
    assert not place.io.rename(f"{place.root}/a", f"{place.root}/b")
    assert place.io.rename(f"{place.root}/a", f"{place.root}/new/c")
    assert place.io.rename(f"{place.root}/d", f"{place.root}/e")
    assert names(place) == ["b", "e", "new"]
