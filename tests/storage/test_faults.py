"""Fault injection: every step can be failed, before or after it was applied, and the count tells how many there are."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lsm_core.storage import FaultyFileIO, FileIO, InjectedFault, LocalFileIO


def operation(io: FileIO, root: str) -> None:
    with io.open_output(f"{root}/data") as out:
        out.write(b"one")
        out.write(b"two")
    io.read_bytes(f"{root}/data")
    with io.open_input(f"{root}/data") as source:
        source.read()
    io.exists(f"{root}/data")
    io.size(f"{root}/data")
    io.mkdirs(f"{root}/snapshot")
    io.write_exclusive(f"{root}/snapshot/snapshot-1", b"1")
    io.overwrite(f"{root}/snapshot/LATEST", b"1")
    io.list_dir(f"{root}/snapshot")
    io.rename(f"{root}/data", f"{root}/data2")
    io.delete(f"{root}/data2")
    io.delete_dir(f"{root}/snapshot")


STEPS = 15


def test_counting_alone_changes_nothing(tmp_path: Path) -> None:
    io = FaultyFileIO(LocalFileIO())
    operation(io, str(tmp_path))
    assert isinstance(io, FileIO)
    assert io.steps == len(io.log) == STEPS
    assert [name for name, _ in io.log][:4] == ["create", "write", "write", "close"]


@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_each_step_fails_where_told(tmp_path: Path, step: int, mode: str) -> None:
    io = FaultyFileIO(LocalFileIO(), step, mode)  # type: ignore[arg-type]
    with pytest.raises(InjectedFault, match=f"{mode} step {step}") as caught:
        operation(io, str(tmp_path))
    assert io.steps == step
    assert pickle.loads(pickle.dumps(caught.value)).errno == caught.value.errno


def test_before_is_not_applied_and_after_is(tmp_path: Path) -> None:
    for mode, there in (("before", False), ("after", True)):
        path = f"{tmp_path}/{mode}"
        with pytest.raises(InjectedFault):
            FaultyFileIO(LocalFileIO(), 1, mode).write_exclusive(path, b"x")  # type: ignore[arg-type]
        assert Path(path).exists() is there


def test_later_steps_work_again_unless_the_disk_is_gone(tmp_path: Path) -> None:
    once = FaultyFileIO(LocalFileIO(), 1)
    gone = FaultyFileIO(LocalFileIO(), 1, fail_after=True)
    for io in (once, gone):
        with pytest.raises(InjectedFault):
            io.exists(str(tmp_path))
    assert once.exists(str(tmp_path))
    with pytest.raises(InjectedFault):
        gone.exists(str(tmp_path))


def test_a_file_whose_writing_failed_is_removed(tmp_path: Path) -> None:
    for step in (2, 3):
        with pytest.raises(InjectedFault), FaultyFileIO(LocalFileIO(), step).open_output(f"{tmp_path}/x") as out:
            out.write(b"x")
        assert list(tmp_path.iterdir()) == []
