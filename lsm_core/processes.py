"""Ports and processes of this machine: when a process started, whether a port is free, and how a server that we started is ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lsm_core.errors import PortInUse

LOOPBACK: Final = "127.0.0.1"


def start_tick(pid: int) -> int | None:
    """Return when a process started, in the kernel's ticks (0 where there is no /proc); None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self").is_dir():
            return None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return 0
        return 0
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def group_lives(group: int) -> bool:
    """Return whether any process of the group is there."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def end_group(group: int, lives: Callable[[], bool], timeout_s: float) -> None:
    """End a process group: TERM, and KILL when ``lives`` still says so after ``timeout_s``, which is then waited for once more.

    The group of a process that was started with ``start_new_session`` has that process's id.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not lives():
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and lives():
            time.sleep(0.05)


def free_port() -> int:
    """Return a port of the loopback interface on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        number: int = probe.getsockname()[1]
        return number


def require_free(port: int, what: str) -> int:
    """Return ``port`` when nobody listens on it; raises PortInUse naming ``what`` wanted it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            raise PortInUse(what, LOOPBACK, port) from error
    return port
