"""Child process that runs fuzz cases under limits on address space, memory and CPU time, and prints their results.

``python -m tests.fuzz.worker SEED FIRST STEP SECONDS PLACE [TABLE ...]`` prints one JSON object per line; a line "case"
is printed before each case.
"""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NoReturn

from lsm_core.errors import DredgeError
from tests.fuzz.cases import Damage, tree, world
from tests.fuzz.exercise import Exercise
from tests.support.data import golden_names, unpack_golden

ADDRESS_SPACE = 3 << 30
"""Bytes of address space that a probe may add."""
MOST_MEMORY = 1 << 30
"""Bytes of resident memory that a probe may add."""
MOST_SECONDS = 10.0
"""Most CPU seconds of one probe; probes of these small tables usually take hundredths of a second."""
_WRITING_SHARE = 0.12
_SLOW = frozenset({"manifest_merge"})
"""Tables with many snapshots, which are used only if they are drawn twice in a row."""


class TooSlow(BaseException):
    """Error: a probe used up its CPU time."""


def main(arguments: list[str]) -> None:
    """Run cases FIRST, FIRST + STEP, ... until SECONDS are over (0: only the first case)."""
    seed, first, step, seconds, place = (
        arguments[0],
        int(arguments[1]),
        int(arguments[2]),
        float(arguments[3]),
        Path(arguments[4]),
    )
    names = arguments[5:] or golden_names()
    warnings.simplefilter("ignore")
    world(place)
    tables = Tables(place, names)
    _warm_up(tables)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _too_slow)
    started, number = time.monotonic(), first
    while True:
        _say(case=number)
        run(seed, number, tables)
        number += step
        if time.monotonic() - started >= seconds:
            break
    _say(end=True, next=number)


class Tables:
    """Golden tables, unpacked on first use."""

    def __init__(self, place: Path, names: list[str]) -> None:
        self.place, self.names = place, sorted(names)
        world(place)

    def root(self, name: str) -> Path:
        """Return the folder of a table; unpack the table if necessary."""
        found = self.place / name / "warehouse" / "db.db" / "t"
        return found if found.is_dir() else unpack_golden(name, self.place / name)

    def copy(self, name: str) -> Path:
        """Copy a table and return the folder of the copy; the caller deletes ``place / "copy"``."""
        shutil.copytree(self.place / name, self.place / "copy")
        return self.place / "copy" / "warehouse" / "db.db" / "t"


def run(seed: str, number: int, tables: Tables) -> None:
    """Run one case: damage a table, execute the probes, print the findings, and undo the damage."""
    random = Random(f"{seed}:{number}")
    name = random.choice(tables.names)
    name = random.choice(tables.names) if name in _SLOW else name
    root, writes = tables.root(name), random.random() < _WRITING_SHARE
    root = tables.copy(name) if writes else root
    world_of_case = root.parents[2]
    done = Damage(random, root).apply()
    before = tree(world_of_case, root), tree(tables.place / "outside", root)
    exercise = Exercise(root, random)
    outcome: Counter[str] = Counter()
    reading = [
        probe for i, probe in enumerate(exercise.reading()) if i == 0 or probe[0] == "read" or random.random() < 0.5
    ]
    for probe, action in [*reading, *(exercise.writing() if writes else ())]:
        _say(at=f"{name}, {done.about}, {probe}")
        problem = _attempt(action, outcome)
        if problem is not None:
            _say(finding=number, at=f"{name}, {done.about}, {probe}", problem=problem)
            if problem.startswith("took"):  # the other probes would wait for the same bytes
                break
    if exercise.files.escapes:
        _say(finding=number, at=f"{name}, {done.about}", problem=f"left the table: {exercise.files.escapes[:5]}")
    if (tree(world_of_case, root), tree(tables.place / "outside", root)) != before:
        _say(finding=number, at=f"{name}, {done.about}", problem="files outside the table changed")
    if writes:
        shutil.rmtree(tables.place / "copy")
    else:
        done.undo()
    _say(done=number, table=name, outcome=dict(outcome))


def _attempt(action: Any, outcome: Counter[str]) -> str | None:
    _forget_peak()
    resident, space = _status("VmRSS"), _status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (space, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        action()
        outcome["fine"] += 1
    except DredgeError as error:
        outcome[type(error).__name__] += 1
    except TooSlow:
        return f"took more than {MOST_SECONDS} s of CPU:\n{traceback.format_exc(limit=-6)}"
    except BaseException as error:  # a panic of a native library is none of Exception's children
        if isinstance(error, KeyboardInterrupt):
            raise
        return "".join(traceback.format_exception(error, limit=-8))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    grown = _status("VmHWM") - resident
    return f"{grown >> 20} MiB more memory at its peak" if grown > MOST_MEMORY else None


def _too_slow(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TooSlow


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> None:
    """Reset the peak memory (VmHWM) of this process to its resident memory (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _warm_up(tables: Tables) -> None:
    """Execute probes on undamaged tables, so that libraries are loaded before limits are set."""
    for name in tables.names[::15]:
        for _, action in Exercise(tables.root(name), Random(0)).reading():
            try:
                action()
            except DredgeError:
                continue


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
