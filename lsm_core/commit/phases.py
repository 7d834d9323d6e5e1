"""The points of a commit at which tests and kill switches may step in, named once for everybody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum


class Phase(StrEnum):
    """Phases of a commit, in order. Compactors and writers use the first and third for their own work."""

    PLAN = "plan"
    READ_BASE = "read_base"
    WRITE_FILES = "write_files"
    WRITE_MANIFESTS = "write_manifests"
    PUBLISH = "publish"
    CLEAN = "clean"


Hook = Callable[[Phase, Mapping[str, object]], None]


class CommitHooks:
    """Calls ``hook(phase, info)`` when a phase begins; ``info`` holds plain values such as ``snapshot_id`` and ``attempt``.

    A hook that raises stops the commit there, as a crash of that step would.
    """

    def __init__(self, hook: Hook | None = None) -> None:
        self._hook = hook

    def enter(self, phase: Phase, **info: object) -> None:
        """Tell that ``phase`` begins."""
        if self._hook is not None:
            self._hook(phase, info)


__all__ = ["CommitHooks", "Hook", "Phase"]
