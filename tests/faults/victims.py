"""Processes that are killed in the middle of their work, at one line of their own I/O trace.

`python -m tests.faults.victims` is a parent process (nursery) that has imported all modules and forks a child process
(victim) per command. A victim stops itself (SIGSTOP) when its trace reaches the wanted line or the wanted point. The
parent then kills the victim with SIGKILL, so that no `finally`, `atexit` or flush runs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from tests.faults.histories import ACTS, opened
from tests.faults.kinds import KINDS

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("round", pa.int32()), ("text", pa.string())])

MAINTAINED_AT_MS = 1_700_000_000_000
"""Time at which the writer of a self-maintaining table writes (epoch ms; 2023-11-14 UTC)."""


def rows(first: int, count: int, number: int) -> pa.Table:
    """Return rows whose values identify the round that wrote them."""
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.table(
        [ids, pa.array([number] * count, pa.int32()), pa.array([f"row of round {number}"] * count)], schema=SCHEMA
    )


def work(what: str, warehouse: str, number: int) -> None:
    """Execute the work of a victim by name: a write, a stream job, a recovery, a statement of a table kind, or others.

    A name that is not known compacts the table.
    """
    from lsm_core import Catalog

    if what in ACTS:
        act = ACTS[what]
        act.run(opened(warehouse, act.at_ms, options=act.options))
        return
    if what == "pieces":  # a compaction in three pieces, whatever the machine and however small the table
        from lsm_core.compact import pieces

        pieces.usable_cores, pieces._OPENING = (lambda: 3), 0.0  # type: ignore[misc]
    if what == "gathering":  # a compaction that copies row groups of small append files
        from lsm_core.compact import append_splicing

        append_splicing.LEAST_ROWS = 8  # type: ignore[misc]
    if what == "maintained write":  # of a table whose writers expire, sweep and tag
        written = pa.table({"k": [60], "v": [60], "s": pa.array([None], pa.string()), "dt": ["2023-11-14"]})
        Catalog(warehouse, clock=f"fixed:{MAINTAINED_AT_MS}").table("db.t").write(written)
        return
    table = Catalog(warehouse).table("db.t")
    if what in KINDS:  # imported by the nursery, so that its victims need not
        KINDS[what].statement(table)
    elif what == "writer":
        table.write(rows(0, 300, number))
    elif what == "spilling writer":
        with table.copy({"write-buffer-size": "4 kb"}).new_write() as writer:
            for start in range(0, 300, 60):
                writer.write(rows(start, 60, number))
            messages = writer.prepare_commit()
        table.new_commit().commit(messages)
    elif what == "stream":
        stream(table, number)
    elif what == "recovery":  # several passes, each of its own commit
        table.copy({"num-sorted-run.compaction-trigger": "3"}).recover(files=3)
    else:
        table.compact(full=True)


STREAM_COMMITS = 3


def stream(table: Any, number: int) -> None:
    """Make commits of a stream job with compactions; skip the commits that an earlier run of the job made."""
    own = [s.commit_identifier for s in table.snapshots() if s.commit_user == "job"]
    options = {"write-only": "false", "num-sorted-run.compaction-trigger": "2", "write-buffer-size": "4 kb"}
    commit = table.new_stream_commit("job")
    with table.copy(options).new_stream_write("job") as writer:
        for identifier in range(max(own, default=-1) + 1, STREAM_COMMITS):
            writer.write(rows(100 * identifier, 100, number))
            messages = writer.prepare_commit(wait_compaction=identifier % 2 == 1, commit_identifier=identifier)
            commit.filter_and_commit({identifier: messages})


_KINDS = (
    (r"/snapshot/snapshot-\d+", "snapshot"),
    (r"/(EARLIEST|LATEST)", "hint"),
    (r"/manifest/(manifest-list|index-manifest|manifest)-[^/]+", r"\1"),
    (r"/(index|statistics|tag|schema|changelog)/[^/]+", r"\1"),
    (r"/dredge/(trash|plans|ledger)/[^/]+?(\.[a-z]+)?", r"\1\2"),
    (r"/bucket-[^/]+/(data|changelog)-[^/]+", r"\1 file"),
)


def point_of(event: str, step: str, path: str) -> str:
    """Return the name of a point in a trace: the event (begin or end), the I/O step, and the kind of file."""
    place = "of a branch " if "/branch-" in path else ""
    for pattern, kind in _KINDS:
        found = re.search(pattern + "$", path)
        if found:
            return f"{event} {step} {place}{found.expand(kind)}"
    return f"{event} {step} {place}folder"


def _stop_at(line: int, point: str) -> None:
    """Stop this process by SIGSTOP when its trace has `line` lines or reaches `point`."""
    from lsm_core.storage import file_io

    append, seen = file_io._append, [0]

    def counting(target: str, event: str, name: str, path: str) -> None:
        append(target, event, name, path)
        seen[0] += 1
        if seen[0] == line or point_of(event, name, path) == point:
            os.kill(os.getpid(), signal.SIGSTOP)

    file_io._append = counting


def _victim(command: dict[str, Any]) -> int:
    os.environ["DREDGE_TRACE"] = command["trace"]
    if command["line"] or command["point"]:
        _stop_at(command["line"], command["point"])
    work(command["what"], command["warehouse"], command["number"])
    return 0


def _raise(command: dict[str, Any]) -> str:
    """Fork one victim and wait for its end; return `killed`, `ended` or `failed`.

    Modules that the victim imported are imported here, too, so that later victims need not import them.
    """
    known, (result, telling) = set(sys.modules), os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _victim(command)
            os.write(telling, " ".join(sys.modules.keys() - known).encode())
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(telling)
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with os.fdopen(result) as imported:
        for name in imported.read().split():
            with suppress(ImportError):  # some modules are made by others, without a file
                import_module(name)
    if os.WIFSTOPPED(status):
        return "killed"
    return "ended" if os.WEXITSTATUS(status) == 0 else "failed"


def main() -> None:
    """Execute commands from standard input, one JSON object per line, and print the result of each."""
    import lsm_core.table.catalog  # noqa: F401

    for line in sys.stdin:
        print(json.dumps(_raise(json.loads(line))), flush=True)


class Nursery:
    """Handle of a test for the parent process of victims."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()  # killed victims leave their spill files here
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.victims"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": self._folder.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, what: str, warehouse: Path | str, trace: Path, *, number: int = 0, line: int = 0, point: str = ""
    ) -> str:
        """Run one victim and return its result; without `line` and `point`, the victim is not killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        command = {
            "what": what,
            "warehouse": str(warehouse),
            "trace": str(trace),
            "number": number,
            "line": line,
            "point": point,
        }
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return str(json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait(timeout=120)
        self._folder.cleanup()


if __name__ == "__main__":
    main()
