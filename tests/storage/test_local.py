"""Local files: exclusive creation, atomic replacing, nothing left behind by a failure, and a full disk with a name."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core.errors import StorageFull, StorageRefused, UnsupportedFeature
from lsm_core.storage import FileIO, LocalFileIO, OutputFile, file_io_for


@pytest.fixture
def io() -> LocalFileIO:
    return LocalFileIO()


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_it_is_a_file_io_and_travels_between_processes(io: LocalFileIO) -> None:
    assert isinstance(io, FileIO)
    assert pickle.loads(pickle.dumps(io)) == io


def test_a_new_file_creates_its_parents_and_never_replaces_another(io: LocalFileIO, tmp_path: Path) -> None:
    path = f"{tmp_path}/a/b/x"
    with io.open_output(path) as out:
        assert isinstance(out, OutputFile)
        assert out.write(b"abc") == 3
        assert out.tell() == 3
        assert not out.closed
    assert out.closed
    assert (io.read_bytes(path), io.size(path), io.exists(path)) == (b"abc", 3, True)
    with pytest.raises(FileExistsError):
        io.open_output(path)
    assert io.read_bytes(path) == b"abc"


def test_parquet_writes_to_and_reads_from_it(io: LocalFileIO, tmp_path: Path) -> None:
    table = pa.table({"a": range(100_000), "b": ["x"] * 100_000})
    path = f"{tmp_path}/t.parquet"
    with io.open_output(path) as out:
        pq.write_table(table, out)
    assert out.tell() == io.size(path)
    with io.open_input(path) as source:
        assert pq.read_table(source).equals(table)


def test_an_exception_while_writing_removes_the_file(io: LocalFileIO, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stop"), io.open_output(f"{tmp_path}/x") as out:
        out.write(b"part")
        raise ValueError("stop")
    assert names(tmp_path) == []
    kept = io.open_output(f"{tmp_path}/kept")
    kept.close()
    kept.abort()
    assert names(tmp_path) == ["kept"]


def test_exclusive_creation_is_refused_for_a_taken_name_and_leaves_no_draft(io: LocalFileIO, tmp_path: Path) -> None:
    path = f"{tmp_path}/snapshot-1"
    assert io.write_exclusive(path, b"first")
    assert not io.write_exclusive(path, b"second")
    assert io.read_bytes(path) == b"first"
    assert names(tmp_path) == ["snapshot-1"]


def _claim(job: tuple[str, int]) -> bool:
    path, who = job
    return LocalFileIO().write_exclusive(path, str(who).encode() * 5000)


def test_of_many_processes_exactly_one_creates_the_file(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        for attempt in range(20):
            path = f"{tmp_path}/snapshot-{attempt}"
            won = list(pool.map(_claim, [(path, who) for who in range(3)]))
            assert sum(won) == 1
            assert Path(path).read_bytes() == str(won.index(True)).encode() * 5000


def test_overwriting_replaces_at_once(io: LocalFileIO, tmp_path: Path) -> None:
    path = f"{tmp_path}/LATEST"
    io.overwrite(path, b"1")
    io.overwrite(path, b"22")
    assert io.read_bytes(path) == b"22"
    assert names(tmp_path) == ["LATEST"]


def test_absent_things_are_told_apart_from_errors(io: LocalFileIO, tmp_path: Path) -> None:
    assert io.list_dir(f"{tmp_path}/none") == []
    assert not io.delete(f"{tmp_path}/none")
    assert not io.delete_dir(f"{tmp_path}/none")
    assert not io.rename(f"{tmp_path}/none", f"{tmp_path}/other")
    for ask in (io.read_bytes, io.open_input, io.size):
        with pytest.raises(FileNotFoundError):
            ask(f"{tmp_path}/none")


def test_listing_tells_names_sizes_and_kinds(io: LocalFileIO, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"12")
    (tmp_path / "a").mkdir()
    (tmp_path / "c").symlink_to(tmp_path / "a")
    found = io.list_dir(str(tmp_path))
    assert [(f.name, f.is_dir) for f in found] == [("a", True), ("b", False), ("c", False)]
    assert found[1].size == 2
    assert found[1].path == f"{tmp_path}/b"
    assert abs(found[1].mtime_ms - (tmp_path / "b").stat().st_mtime * 1000) < 2


def test_renaming_never_replaces(io: LocalFileIO, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    (tmp_path / "d").mkdir()
    assert not io.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    assert io.rename(f"{tmp_path}/a", f"{tmp_path}/new/c")
    assert io.rename(f"{tmp_path}/d", f"{tmp_path}/e")
    assert names(tmp_path) == ["b", "e", "new"]


def test_deleting_a_directory_removes_links_but_not_what_they_lead_to(io: LocalFileIO, tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "x").write_text("x")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone/link").symlink_to(keep)
    assert io.delete_dir(f"{tmp_path}/gone")
    assert (keep / "x").exists()
    (tmp_path / "link").symlink_to(keep)
    assert not io.delete_dir(f"{tmp_path}/link")


def test_a_full_disk_is_named_and_nothing_stays_open(
    io: LocalFileIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import lsm_core.storage.local_file_io as local

    class Full(local.io.FileIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local.io, "FileIO", Full)
    before = len(os.listdir("/proc/self/fd"))
    for act in (
        lambda: io.write_exclusive(f"{tmp_path}/snapshot-1", b"x"),
        lambda: io.overwrite(f"{tmp_path}/LATEST", b"1"),
        lambda: _write(io, f"{tmp_path}/data", b"x" * 10_000_000),
        lambda: _write(io, f"{tmp_path}/small", b"x"),
    ):
        with pytest.raises(StorageFull, match=str(tmp_path)):
            act()
    assert names(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


def _write(io: LocalFileIO, path: str, data: bytes) -> None:
    with io.open_output(path) as out:
        out.write(data)


def test_a_full_disk_below_parquet_is_the_same_error(
    io: LocalFileIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import lsm_core.storage.local_file_io as local

    class Full(local.io.FileIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local.io, "FileIO", Full)
    with pytest.raises(StorageFull), io.open_output(f"{tmp_path}/t.parquet") as out:
        pq.write_table(pa.table({"a": pa.array(range(1_000_000))}), out)
    assert names(tmp_path) == []


def test_addresses_lead_to_local_files_or_say_what_is_not_supported(tmp_path: Path) -> None:
    assert file_io_for(str(tmp_path)) == (LocalFileIO(), str(tmp_path))
    assert file_io_for(f"file://{tmp_path}/a%20b") == (LocalFileIO(), f"{tmp_path}/a b")
    assert file_io_for(f"file:{tmp_path}/x/")[1] == f"{tmp_path}/x"
    assert file_io_for(tmp_path / "with space")[1] == f"{tmp_path}/with space"
    for url in ("viewfs://name/x", "file://elsewhere/x"):
        with pytest.raises(UnsupportedFeature, match=url.split(":", maxsplit=1)[0]):
            file_io_for(url)


def test_the_trace_tells_each_step_as_it_begins_and_ends(
    io: LocalFileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    diary = tmp_path / "diary"
    monkeypatch.setenv("DREDGE_TRACE", str(diary))
    io.write_exclusive(f"{tmp_path}/s", b"x")
    with pytest.raises(FileNotFoundError):
        io.read_bytes(f"{tmp_path}/none")
    lines = [json.loads(line) for line in diary.read_text().splitlines()]
    assert [(e["event"], e["step"]) for e in lines][-4:] == [
        ("begin", "link"),
        ("end", "link"),
        ("begin", "read"),
        ("fail", "read"),
    ]
    assert {e["pid"] for e in lines} == {os.getpid()}
    assert [e["ns"] for e in lines] == sorted(e["ns"] for e in lines)
    monkeypatch.delenv("DREDGE_TRACE")
    io.exists(str(diary))
    assert len(diary.read_text().splitlines()) == len(lines)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_file_system_that_takes_nothing_new_is_named(
    io: LocalFileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: str, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr("lsm_core.storage.local_file_io.io.FileIO", refuse)
    monkeypatch.setattr("lsm_core.storage.local_file_io.os.makedirs", refuse)
    for create in (io.open_output, lambda p: io.write_exclusive(p, b"x"), lambda p: io.overwrite(p, b"x"), io.mkdirs):
        with pytest.raises(StorageRefused, match=rf"cannot create .*new.*: {os.strerror(number)}"):
            create(f"{tmp_path}/new")
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_what_cannot_be_moved_or_removed_is_named(
    io: LocalFileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: str, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), path)

    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "file").write_text("x")
    with monkeypatch.context() as patched:
        patched.setattr("lsm_core.storage.local_file_io.os.rename", refuse)
        patched.setattr("lsm_core.storage.local_file_io.shutil.rmtree", refuse)
        with pytest.raises(StorageRefused, match=rf"cannot move .*table: {os.strerror(number)}"):
            io.rename(f"{tmp_path}/table", f"{tmp_path}/other")
        with pytest.raises(StorageRefused, match=rf"cannot remove .*table: {os.strerror(number)}"):
            io.delete_dir(f"{tmp_path}/table")
    assert names(tmp_path) == ["table"]


def test_a_directory_in_a_folder_that_lets_nothing_go_keeps_its_files(
    io: LocalFileIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "file").write_text("x")
    monkeypatch.setattr("lsm_core.storage.local_file_io.os.access", lambda path, mode: path != str(tmp_path))
    with pytest.raises(StorageRefused, match=r"cannot remove .*table: Permission denied"):
        io.delete_dir(f"{tmp_path}/table")
    monkeypatch.setattr("lsm_core.storage.local_file_io.os.statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    with pytest.raises(StorageRefused, match=r"cannot remove .*table: Read-only file system"):
        io.delete_dir(f"{tmp_path}/table")
    assert names(tmp_path / "table") == ["file"]
