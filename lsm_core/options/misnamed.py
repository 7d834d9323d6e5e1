"""Advice for option names that articles and older versions spell differently."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from lsm_core.options.keys import DREDGE_KEYS, OTHER_ENGINES, PAIMON_KEYS, family_key

_SEPARATORS: Final = re.compile(r"[._-]+")
_NEAR: Final = 0.88
"""Similarity to a known name (as measured by difflib) from which an unknown name counts as a misspelling."""
_SORTING: Final = (
    "'clustering.columns' and 'clustering.strategy' set the order of a sort compaction "
    "(`dredge compact --order-strategy auto`); its other options are 'sort-compaction.range-strategy' "
    "and 'sort-compaction.local-sample.magnification'"
)
_RUNS: Final = (
    "'num-sorted-run.compaction-trigger' starts a compaction, and 'num-sorted-run.stop-trigger' makes writers wait"
)
_EXACT: Final[Mapping[str, str]] = {
    "compaction.sorted-run.stop-trigger": "the right name is 'num-sorted-run.stop-trigger'",
    "fields.default.aggregate-function": (
        "for all columns the right name is 'fields.default-aggregate-function'; "
        "this one is about a column called 'default'"
    ),
    "scan.remove-normalize": (
        "only Flink uses it: readers here add no operator that normalizes a changelog, so it can be removed"
    ),
    "log.scan.remove-normalize": (
        "it is Flink's old name of 'scan.remove-normalize'; "
        "readers here add no operator that normalizes a changelog, so it can be removed"
    ),
    "lock.timeout": (
        "the right name is 'lock-acquire-timeout' (of a catalog), or 'dredge.lock.acquire-timeout' (of a table)"
    ),
}
_PREFIXES: Final[Mapping[str, str]] = {
    "lookup.compact": (
        "'lookup-compact' is radical or gentle, and 'lookup-compact.max-interval' limits the waiting time of gentle"
    ),
    "compaction.sorted-run": _RUNS,
    "sort-compaction": _SORTING,
    "sort.compaction": _SORTING,
}


def _normalize(name: str) -> str:
    return _SEPARATORS.sub("-", name.strip().lower())


_KNOWN: Final[tuple[str, ...]] = tuple(sorted(key.name for key in (*PAIMON_KEYS, *DREDGE_KEYS)))
_VALID_NAMES: Final = frozenset(
    (*_KNOWN, *OTHER_ENGINES, *(alias for key in (*PAIMON_KEYS, *DREDGE_KEYS) for alias in key.aliases))
)
_BY_NORMALIZED_NAME: Final[Mapping[str, str]] = {_normalize(name): name for name in _KNOWN}


@lru_cache(maxsize=1024)
def advice_on(name: str) -> str:
    """Return advice on the right name of an option, or "" if ``name`` is valid or resembles no known name."""
    if name in _EXACT:
        return _EXACT[name]
    if name in _VALID_NAMES or family_key(name) is not None:
        return ""
    same = _BY_NORMALIZED_NAME.get(_normalize(name))
    if same is not None:
        return f"the right name is '{same}'"
    for prefix, advice in _PREFIXES.items():
        if name.lower().startswith(prefix):
            return advice
    near = get_close_matches(name.lower(), _KNOWN, 1, _NEAR)
    return f"did you mean '{near[0]}'?" if near else ""


def misnamed(options: Iterable[str]) -> dict[str, str]:
    """Return the misspelt or obsolete options, each with advice on the right name, sorted by name."""
    advice = {name: advice_on(name) for name in sorted(options)}
    return {name: text for name, text in advice.items() if text}
