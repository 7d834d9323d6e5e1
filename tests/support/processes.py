"""How the suite is shared out among test processes: a file stays whole, and what needs Spark stays with the one session."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

SESSION: Final = ("tests/spark/", "tests/checks/")
"""Folders whose tests use the shared Spark session: starting a second one costs more than sharing their tests out would save."""


def group_of(nodeid: str) -> str:
    """Tests of one group run in one process, in order: those of a file, or all that use the session."""
    path = nodeid.split("::", 1)[0]
    return SESSION[0] if path.startswith(SESSION) else path


class ByGroup(LoadScopeScheduling):
    """Hands out whole groups, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


__all__ = ["SESSION", "ByGroup", "group_of"]
