"""Temporary folders of killed processes go; those of living ones, of other users and whatever a link names stay."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lsm_core.processes import start_tick
from lsm_core.storage.scratch import ScratchFolder, sweep

PREFIX = "dredge-test-"
CHILD = """
import os, signal, sys
from lsm_core.storage.scratch import ScratchFolder
folder = ScratchFolder("dredge-test-", sys.argv[1])
open(folder.path + "/run-0.arrow", "w").write("rows")
print(folder.path, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def child(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def killed(process: subprocess.Popen[str]) -> None:
    process.communicate("go\n")
    assert process.returncode == -signal.SIGKILL


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_killed_owner_s_folder_goes_with_the_next_one_and_a_living_owner_s_stays(tmp_path: Path) -> None:
    dead, left = child(tmp_path)
    alive, held = child(tmp_path)
    try:
        killed(dead)
        assert names(left) == ["owner.lock", "run-0.arrow"]
        mine = ScratchFolder(PREFIX, str(tmp_path))
        assert names(tmp_path) == sorted([held.name, Path(mine.path).name])
        assert sweep(PREFIX, str(tmp_path), now=True) == []  # neither our own
        mine.remove()
        mine.remove()
    finally:
        killed(alive)
    assert sweep(PREFIX, str(tmp_path), now=True) == [held.name]
    assert names(tmp_path) == []


def leave(parent: Path, name: str = "dredge-test-left", **changes: object) -> Path:
    """A folder of a process that is gone, but for ``changes``."""
    made = ScratchFolder(PREFIX, str(parent))
    owner = json.loads((Path(made.path) / "owner.lock").read_text())
    made.remove()
    folder = parent / name
    folder.mkdir()
    (folder / "run-0.arrow").write_text("rows")
    (folder / "owner.lock").write_text(json.dumps({**owner, "started": 1, **changes}))
    return folder


def held_by_a_lock(folder: Path) -> None:
    lock = os.open(folder / "owner.lock", os.O_RDWR)  # until the process ends
    fcntl.flock(lock, fcntl.LOCK_EX)


def a_link_for_an_owner(folder: Path) -> None:
    (folder / "owner.lock").rename(folder.parent / "elsewhere")
    (folder / "owner.lock").symlink_to(folder.parent / "elsewhere")


def a_pipe_for_an_owner(folder: Path) -> None:
    (folder / "owner.lock").unlink()
    os.mkfifo(folder / "owner.lock")


def another_user_s(folder: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    os.chown(folder, 54321, 54321)


def of(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        owner = json.loads((folder / "owner.lock").read_text())
        (folder / "owner.lock").write_text(json.dumps({**owner, **changes}))

    return change


KEPT: dict[str, Callable[[Path], object]] = {
    "no owner": lambda folder: (folder / "owner.lock").unlink(),
    "no owner yet": lambda folder: (folder / "owner.lock").write_text(""),
    "no JSON": lambda folder: (folder / "owner.lock").write_text("{"),
    "another machine": of(host="elsewhere"),
    "an owner that lives": of(started=start_tick(os.getpid())),
    "no number": of(pid="1"),
    "a lock held": held_by_a_lock,
    "a link for an owner": a_link_for_an_owner,
    "a pipe for an owner": a_pipe_for_an_owner,
    "another prefix": lambda folder: folder.rename(folder.parent / "other-test-left"),
    "another user's": another_user_s,
}


@pytest.mark.parametrize("case", KEPT)
def test_whatever_is_not_surely_abandoned_stays(tmp_path: Path, case: str) -> None:
    KEPT[case](leave(tmp_path))
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    assert sweep(PREFIX, str(tmp_path), now=True) == []
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


def test_a_folder_from_before_the_last_boot_goes(tmp_path: Path) -> None:
    folder = leave(tmp_path, boot="an earlier one", pid=os.getpid(), started=start_tick(os.getpid()))
    assert sweep(PREFIX, str(tmp_path), now=True) == [folder.name]


def test_links_are_never_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    place = tmp_path / "temporary"
    place.mkdir()
    inner = leave(place)
    (inner / "run-1.arrow").symlink_to(precious / "file")
    (inner / "run-2.arrow").symlink_to(precious)
    outer = leave(tmp_path, "outside")
    (place / "dredge-test-link").symlink_to(outer)
    assert sweep(PREFIX, str(place), now=True) == [inner.name]
    assert names(place) == ["dredge-test-link"]
    assert names(precious) == ["file"]
    assert names(outer) == ["owner.lock", "run-0.arrow"]


def test_a_place_is_swept_once_in_a_while(tmp_path: Path) -> None:
    first = ScratchFolder(PREFIX, str(tmp_path))
    left = leave(tmp_path)
    second = ScratchFolder(PREFIX, str(tmp_path))
    assert left.exists()
    first.remove()
    second.remove()
    assert sweep(PREFIX, f"{tmp_path}/none", now=True) == []


def test_a_folder_goes_with_its_last_reference_but_not_from_a_fork(tmp_path: Path) -> None:
    folder = ScratchFolder(PREFIX, str(tmp_path))
    fork = os.fork()
    if not fork:
        del folder
        os._exit(0)
    os.waitpid(fork, 0)
    assert len(names(tmp_path)) == 1
    del folder
    assert names(tmp_path) == []
