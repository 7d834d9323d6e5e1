"""What became of an operation whose storage fails: what its caller is told."""

from __future__ import annotations

from collections.abc import Callable

from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.storage import InjectedFault


def outcome_of(operation: Callable[[], object]) -> str:
    """ "succeeded", "failed" or "unknown"; any other error is a bug, and raised."""
    try:
        operation()
    except CommitUnknown:
        return "unknown"
    except (InjectedFault, DredgeError):
        return "failed"
    return "succeeded"
