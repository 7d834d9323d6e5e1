"""Ports and processes of this machine: start time of a process, free ports, termination of a server."""

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
    """Return the start time of a process in kernel ticks (0 without /proc); None for an ended process or a zombie."""
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
    """Return whether any process of a group exists."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def end_group(group: int, lives: Callable[[], bool], timeout_s: float) -> None:
    """End a process group with TERM, and with KILL if the group still exists after the timeout.

    Each signal is followed by a wait.

    Args:
        group: id of the group; for a process started with ``start_new_session`` it is the process id.
        lives: function that returns whether the group still exists.
        timeout_s: wait after each signal (s).
    """
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        if not lives():
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal_number)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and lives():
            time.sleep(0.05)


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        number: int = probe.getsockname()[1]
        return number


def require_free(port: int, server: str) -> int:
    """Return ``port`` if it is free on the loopback interface.

    Raises:
        PortInUse: another program uses the port; the message names ``server``.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            raise PortInUse(server, LOOPBACK, port) from error
    return port
