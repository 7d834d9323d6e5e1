"""Trace of I/O steps for tests that kill processes: the steps that had begun, and those that had ended."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

TRACE_VARIABLE = "DREDGE_TRACE"


@contextmanager
def step(name: str, path: str) -> Iterator[None]:
    """Write ``begin`` and ``end`` (or ``fail``) lines around one I/O step if ``DREDGE_TRACE`` names a file.

    Each line is a JSON object ``{"pid", "ns", "event", "step", "path"}``. ``ns`` is the machine's monotonic clock, so
    lines of several processes can be ordered. Each line is one append, so lines are never mixed.
    """
    target = os.environ.get(TRACE_VARIABLE)
    if not target:
        yield
        return
    _append(target, "begin", name, path)
    try:
        yield
    except BaseException:
        _append(target, "fail", name, path)
        raise
    _append(target, "end", name, path)


def _append(target: str, event: str, name: str, path: str) -> None:
    line = {"pid": os.getpid(), "ns": time.monotonic_ns(), "event": event, "step": name, "path": path}
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, (json.dumps(line) + "\n").encode())
    finally:
        os.close(handle)
