"""How the suite is shared out among test processes: a file stays whole, and what needs Spark stays with the one session."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

SESSION: Final = ("tests/spark/", "tests/checks/", "tests/docs/test_spark_blocks.py")
"""Folders whose tests use the shared Spark session: starting a second one costs more than sharing their tests out would save."""

SHARED_OUT: Final = ("tests/interop/test_turns.py", "tests/faults/test_side_files.py")
"""Long files whose tests need nothing of each other: each of them is a group of its own."""

FIRST: Final = (SESSION[0], "tests/ui/", "tests/fuzz/test_fuzz.py", *SHARED_OUT)
"""Groups to begin with: the longest, and the one that mostly waits for a platform; last, the other process would wait for them."""


def group_of(nodeid: str) -> str:
    """Tests of one group run in one process, in order: those of a file, or all that use the session."""
    path = nodeid.split("::", 1)[0]
    if path in SHARED_OUT:
        return nodeid
    return SESSION[0] if path.startswith(SESSION) else path


def turn_of(nodeid: str) -> int:
    """Place of a test's group: those of FIRST come first, the others after them as they were collected."""
    group = group_of(nodeid)
    return next((place for place, start in enumerate(FIRST) if group.startswith(start)), len(FIRST))


class ByGroup(LoadScopeScheduling):
    """Hands out whole groups, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


__all__ = ["FIRST", "SESSION", "SHARED_OUT", "ByGroup", "group_of", "turn_of"]
