"""Damaged and hostile tables end in typed errors that Dredge raises on purpose: never in another error, a crash, a hang or a write elsewhere.

``DREDGE_FUZZ_SECONDS`` (default 6, in `make soak` 120) is the time spent by all workers together, ``DREDGE_FUZZ_SEED`` chooses the cases
and ``DREDGE_FUZZ_CASE`` runs a single one; a finding prints both.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.data import ROOT

_WORKERS = 2
_STUCK = 120.0
"""Seconds of wall clock without a word: native code that hangs cannot be interrupted from inside."""


def _seconds(default: float) -> float:
    return float(os.environ.get("DREDGE_FUZZ_SECONDS", default))


class Worker:
    """One child process; begins again behind the case that killed it."""

    def __init__(self, seed: str, first: int, step: int, place: Path) -> None:
        self.seed, self.next, self.step, self.place = seed, first, step, place
        self.findings: list[dict[str, Any]] = []
        self.outcomes: Counter[str] = Counter()
        self.cases = self._lives = 0
        self._began = False

    def run(self, seconds: float) -> None:
        """Work for ``seconds``; every end that is not our own is a finding."""
        until = time.monotonic() + seconds
        while True:
            self._live(max(0.0, until - time.monotonic()))
            if time.monotonic() >= until or self._lives > 20 or not self._began:
                return

    def _live(self, seconds: float) -> None:
        self._lives += 1
        place = self.place / str(self._lives)
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.worker",
            self.seed,
            str(self.next),
            str(self.step),
            str(seconds),
            str(place),
        ]
        current, ended, at, last = None, False, "?", ""
        with (self.place / "stderr").open("w+") as noise:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=noise, text=True, cwd=ROOT) as process:
                for line in _lines(process):
                    message = json.loads(line)
                    if "case" in message:
                        current, self._began = message["case"], True
                        self.next = current + self.step
                    at = message.get("at", at)
                    if "finding" in message:
                        self.findings.append(message)
                    if "done" in message:
                        self.cases += 1
                        self.outcomes.update(message["outcome"])
                    ended = ended or "end" in message
                code = process.wait()
            noise.seek(0)
            last = noise.read()[-1500:]
        if not ended:
            self.findings.append({"finding": current, "at": at, "problem": f"the process ended with {code}:\n{last}"})


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """What the child says; it is killed when it falls silent."""
    lines: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=_STUCK)
        except queue.Empty:
            process.kill()
            return
        if line is None:
            return
        yield line


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seconds", [6, pytest.param(120, marks=pytest.mark.soak)])
def test_damaged_tables_end_in_typed_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: float) -> None:
    """Every decoder, on every golden table, damaged at random."""
    seed = os.environ.get("DREDGE_FUZZ_SEED") or str(time.time_ns() % 10**9)
    single = os.environ.get("DREDGE_FUZZ_CASE")
    workers = [Worker(seed, i, _WORKERS, tmp_path / str(i)) for i in range(1 if single else _WORKERS)]
    for worker in workers:
        worker.place.mkdir()
        if single:
            worker.next = int(single)
    threads = [
        threading.Thread(target=worker.run, args=(0.0 if single else _seconds(seconds) / _WORKERS,))
        for worker in workers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcomes = sum((worker.outcomes for worker in workers), Counter[str]())
    cases = sum(worker.cases for worker in workers)
    with capsys.disabled():
        print(f"\nfuzz: DREDGE_FUZZ_SEED={seed}, {cases} cases, {dict(outcomes.most_common())}", file=sys.stderr)
    findings = [finding for worker in workers for finding in worker.findings]
    assert not findings, report(seed, findings)
    assert cases > 0


def report(seed: str, findings: list[dict[str, Any]]) -> str:
    """Findings as text, one of each kind, each with what repeats it."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for finding in findings:
        lines = finding["problem"].strip().splitlines()
        where = [line.strip() for line in lines if 'File "' in line][-1:]
        kinds.setdefault(f"{where}{lines[-1][:40]}", []).append(finding)
    texts = [
        f"--- {len(same)}x, DREDGE_FUZZ_SEED={seed} DREDGE_FUZZ_CASE={same[0]['finding']}: {same[0]['at']}\n"
        f"{same[0]['problem']}"
        for same in kinds.values()
    ]
    return f"{len(findings)} findings of {len(kinds)} kinds\n" + "\n".join(texts)
