"""Spark for tests: one session with an event log and traced workers, a reader of the event log, and child processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options of a short-lived JVM with small data.

A second compilation of hot code, parallel garbage collection, full collections while classes are loaded, and verification of
released jars cost more than they give. (Spark's tests take 67 s of the JVM with these options, 100 s with the optimising compiler.)
"""


INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings of a session without code generation, which takes longer than the few rows of a test.

test_connect.py also reads with generated code.
"""


@dataclass(frozen=True)
class TracedSession:
    """Spark session, folder of its event log, and trace file of the I/O steps of its workers."""

    spark: Any
    events: Path
    trace: Path


@contextmanager
def traced_session(folder: Path) -> Iterator[TracedSession]:
    """Yield a Spark session whose workers write the trace file of DREDGE_TRACE; this process writes no trace."""
    from lsm_core.spark import spark_session, stop_session

    events, trace = folder / "events", folder / "trace.jsonl"
    events.mkdir(parents=True)
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
        "spark.eventLog.compress": "false",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        **INTERPRETED,
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DREDGE_TRACE", str(trace))
        spark = spark_session(conf=conf, app_name="dredge-tests")
    try:
        yield TracedSession(spark, events, trace)
    finally:
        stop_session(spark)


@dataclass(frozen=True)
class Stage:
    """Finished stage: number of tasks, and bytes that each task sent to the driver."""

    tasks: int
    result_bytes: tuple[int, ...]


class EventLog:
    """Reader of Spark's event log, from the creation of this object."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = len(self._lines())

    def stages(self) -> list[Stage]:
        """Return the stages that were completed since the creation of this object, in order."""
        events = [json.loads(line) for line in self._lines()[self._seen :]]
        sizes: dict[int, list[int]] = {}
        for event in events:
            if event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                sizes.setdefault(event["Stage ID"], []).append(event["Task Metrics"]["Result Size"])
        done = [e["Stage Info"] for e in events if e["Event"] == "SparkListenerStageCompleted"]
        return [Stage(info["Number of Tasks"], tuple(sizes.get(info["Stage ID"], ()))) for info in done]

    def _lines(self) -> list[str]:
        time.sleep(0.3)  # listeners write asynchronously
        files = sorted(self._folder.rglob("events_*"))
        return [line for file in files for line in file.read_text("utf-8").splitlines() if line.endswith("}")]


def kill_when(
    trace: Path, matches: Callable[[dict[str, Any]], bool], times: int = 1, seconds: float = 60
) -> threading.Thread:
    """Start a thread that kills workers by SIGKILL when they write a matching line to the trace.

    Args:
        trace: trace file; only new lines count.
        matches: returns whether a trace line matches.
        times: number of different processes to kill.
        seconds: time after which the thread ends.

    Returns:
        The thread; its attribute `killed` lists the process ids.
    """
    start = trace.stat().st_size if trace.exists() else 0
    killed: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        deadline, place, begun = time.monotonic() + seconds, start, b""
        while time.monotonic() < deadline and len(killed) < times and not stop.is_set():
            if trace.exists():
                with trace.open("rb") as file:
                    file.seek(place)
                    new = file.read()
                place += len(new)
                *lines, begun = (begun + new).split(b"\n")
                due = dict.fromkeys(entry["pid"] for entry in map(json.loads, lines) if matches(entry))
                for pid in due:
                    if len(killed) < times and pid != os.getpid() and pid not in killed and _kill(pid):
                        killed.append(pid)
            time.sleep(0.001)

    thread = threading.Thread(target=watch, daemon=True)
    thread.killed = killed  # type: ignore[attr-defined]
    thread.stop = stop  # type: ignore[attr-defined]
    thread.start()
    return thread


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return False
    return True


def run_script(
    code: str, *arguments: str, env: dict[str, str] | None = None, timeout: float = 150
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a new process, in the project folder; return the completed process with its output."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=variables,
        cwd=ROOT,
        check=False,
    )


def bin_without_java(folder: Path) -> str:
    """Create a folder for PATH with links to all programs of this machine except Java's; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for place in ("/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


__all__ = [
    "INTERPRETED",
    "JAVA_OPTIONS",
    "ROOT",
    "EventLog",
    "Stage",
    "TracedSession",
    "bin_without_java",
    "kill_when",
    "run_script",
    "traced_session",
]
