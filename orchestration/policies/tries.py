"""Whether a plan whose run failed is tried again: a few times, later and later, and never without a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from orchestration.policies.decision import Reason

MINUTE_MS: Final = 60_000
WAITS_MS: Final = (10 * MINUTE_MS, 60 * MINUTE_MS)
"""How long after the first failure of a plan its second run starts, and after the second its third; there is no fourth."""
TRIES: Final = len(WAITS_MS) + 1


class Ending(StrEnum):
    """How a run ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"


@dataclass(frozen=True)
class Try:
    """A run that was given the plan; ``ended_ms`` is when it ended (epoch ms of the wall's clock, as Dagster keeps it)."""

    run_id: str
    ending: Ending
    ended_ms: int


@dataclass(frozen=True)
class Again:
    """``number`` of the try to start now (1: the first), or None, with the ``reason`` and the ``text`` that the tick says."""

    number: int | None
    text: str = ""
    reason: Reason = Reason.DONE_BEFORE


def decide_again(tries: Sequence[Try], plan: str, now_ms: int) -> Again:
    """Decide from all runs of one plan, newest first: only failures are repeated, a run that a person ended never is."""
    if not tries:
        return Again(1)
    last, failed = tries[0], sum(one.ending is Ending.FAILED for one in tries)
    run, until = f"run {last.run_id[:8]}", "not requested again until a commit changes the plan"
    by_hand = "materialise the layout to start one by hand"
    if last.ending is Ending.DONE:
        return Again(None, f"plan {plan[:12]} was given to {run}, which succeeded; see its outcome")
    if last.ending is Ending.CANCELED:
        return Again(None, f"plan {plan[:12]}: {run} was canceled: {until}; {by_hand}", Reason.CANCELED)
    if failed >= TRIES:
        text = f"plan {plan[:12]}: {run} failed, the last of {TRIES} tries: {until}; see its error, then {by_hand}"
        return Again(None, text, Reason.FAILED)
    wait = last.ended_ms + WAITS_MS[failed - 1] - now_ms
    if wait > 0:
        minutes = -(-wait // MINUTE_MS)
        text = (
            f"plan {plan[:12]}: {run} failed, try {failed} of {TRIES}: requested again in {minutes} min; or {by_hand}"
        )
        return Again(None, text, Reason.FAILED)
    return Again(failed + 1, f"try {failed + 1} of {TRIES}: {run} failed")


__all__ = ["TRIES", "WAITS_MS", "Again", "Ending", "Try", "decide_again"]
