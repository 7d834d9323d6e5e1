"""Alternating rounds, medians, peak memory in separate processes, and the table of results."""

from __future__ import annotations

import gc
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

ROUNDS = 5
MIB = 2**20


@dataclass(frozen=True)
class Result:
    """One figure of a benchmark.

    Attributes:
        bench: name of the benchmark.
        name: name of the figure.
        value: the figure, in ``unit``.
        unit: "x" for a ratio, else a unit of time, size or rate.
        target: limit of the value, or None.
        better: "lower" or "higher".
        low: minimum over the rounds, or None.
        high: maximum over the rounds, or None.
        note: remark for the reader.
        ok: whether the target is met; None without a target.
    """

    bench: str
    name: str
    value: float
    unit: str
    target: float | None
    better: str = "lower"
    low: float | None = None
    high: float | None = None
    note: str = ""
    ok: bool | None = field(default=None)

    def judged(self) -> Result:
        """Return the result with `ok` computed from the target."""
        if self.target is None:
            return self
        good = self.value <= self.target if self.better == "lower" else self.value >= self.target
        return Result(**{**asdict(self), "ok": good})


@dataclass(frozen=True)
class Timing:
    """Seconds of each round of one subject."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class OnFresh:
    """A subject that needs a fresh object each round; creating and removing the object is not timed."""

    made: Callable[[], AbstractContextManager[Any]]
    work: Callable[[Any], object]


Subject = Callable[[], object] | OnFresh


def alternate(subjects: Mapping[str, Subject], rounds: int = ROUNDS) -> dict[str, Timing]:
    """Run every subject once per round, in turn, after one warm-up round; return wall-clock seconds by subject."""
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for round_number in range(rounds + 1):
        for name, subject in subjects.items():
            elapsed = _timed(subject)
            if round_number:
                seconds[name].append(elapsed)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def _timed(subject: Subject) -> float:
    fresh = subject if isinstance(subject, OnFresh) else None
    with nullcontext() if fresh is None else fresh.made() as prepared:
        gc.collect()
        pa.default_memory_pool().release_unused()
        started = time.perf_counter()
        if fresh is None:
            subject()  # type: ignore[operator]
        else:
            fresh.work(prepared)
        return time.perf_counter() - started


def own_peak() -> float:
    """Return the peak resident MiB of this process since its program began (Linux: VmHWM).

    `getrusage` is not usable: after a fork the peak of a child starts with the memory of its parent.
    """
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 1024  # type: ignore[union-attr]


def in_own_process(program: str, *arguments: str) -> Any:
    """Run a Python ``program``, which can import `bench`, in its own process; return its JSON output."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True, env=_environment()
    )
    return json.loads(done.stdout)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}


def peak_of(command: list[str]) -> tuple[float, float]:
    """Run a command; return the peak RSS of its process tree in MiB (sampled every 10 ms) and its seconds."""
    started = time.perf_counter()
    process = subprocess.Popen(command, env=_environment())
    peak, stop = [0.0], threading.Event()

    def sample() -> None:
        root = psutil.Process(process.pid)
        while not stop.is_set():
            try:
                tree = [root, *root.children(recursive=True)]
                peak[0] = max(peak[0], sum(p.memory_info().rss for p in tree) / MIB)
            except psutil.Error:
                return
            time.sleep(0.01)

    sampler = threading.Thread(target=sample)
    sampler.start()
    code = process.wait()
    stop.set()
    sampler.join()
    if code:
        raise RuntimeError(f"the process ended with code {code}")
    return peak[0], time.perf_counter() - started


def ratio(bench: str, name: str, subject: Timing, limit: Timing, target: float, rows: int) -> list[Result]:
    """Return the ratio of medians against its target, with the range of per-round ratios, and both times."""
    pairs = [mine / theirs for mine, theirs in zip(subject.seconds, limit.seconds, strict=True)]
    judged = Result(
        bench, name, subject.median / limit.median, "x", target, low=min(pairs), high=max(pairs),
        note=f"{rows / subject.median / 1e6:.2f} M rows/s",
    ).judged()  # fmt: skip
    times = [
        Result(bench, f"{name}: {who}", t.median, "s", None, low=min(t.seconds), high=max(t.seconds))
        for who, t in (("dredge", subject), ("limit", limit))
    ]
    return [judged, *times]


def java_version() -> str:
    """Return the version of the Java Paimon that benchmarks run, and of the JVM, for people."""
    # Not at the top: children whose memory is measured import this module.
    from tests.support.peers import java_environment, peer_module

    java_environment()
    module = peer_module()
    try:
        bundle, java = module.bundle_jar(), module.java_command()
    except module.PeerMissing:
        return ""
    named = re.fullmatch(r"paimon-bundle-(.+)\.jar", bundle.name)
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    jvm = re.search(r'version "([^"]+)"', told.stderr + told.stdout)
    return f"Paimon {named.group(1) if named else bundle.name}, JVM {jvm.group(1) if jvm else java}"


def with_java_version(results: list[Result]) -> list[Result]:
    """Return the results; the notes of figures that Java Paimon is part of name its version."""
    measured = [bool(re.search(r"\bjava\b", f"{result.bench} {result.name}".lower())) for result in results]
    version = java_version() if any(measured) else ""
    return [
        replace(result, note="; ".join(filter(None, [result.note, version]))) if java and version else result
        for result, java in zip(results, measured, strict=True)
    ]


def table(results: list[Result]) -> str:
    """Return the results as aligned text."""
    head = ("bench", "figure", "median", "min", "max", "target", "ok", "note")

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    body = [
        (r.bench, r.name, f"{r.value:.3f} {r.unit}", number(r.low), number(r.high),
         "" if r.target is None else f"{'<=' if r.better == 'lower' else '>='} {r.target:g}",
         "" if r.ok is None else ("yes" if r.ok else "NO"), r.note)
        for r in results
    ]  # fmt: skip
    rows = [head, *body]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
