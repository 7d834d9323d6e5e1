"""Names of options that articles and older versions spell otherwise, and the names that have an effect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from lsm_core.options.keys import DREDGE_KEYS, FLINK_READING, PAIMON_KEYS, family_key

_SEPARATORS: Final = re.compile(r"[._-]+")
_NEAR: Final = 0.88
"""Similarity, as difflib measures it, from which on an unknown name is taken for a misspelt one."""
_SORTING: Final = (
    "'clustering.columns' and 'clustering.strategy' name what a sort compaction sorts by (`dredge compact --order-strategy auto`); "
    "its other options are 'sort-compaction.range-strategy' and 'sort-compaction.local-sample.magnification'"
)
_RUNS: Final = (
    "'num-sorted-run.compaction-trigger' starts a compaction, and 'num-sorted-run.stop-trigger' makes writers wait"
)
_EXACT: Final[Mapping[str, str]] = {
    "compaction.sorted-run.stop-trigger": "the right name is 'num-sorted-run.stop-trigger'",
    "fields.default.aggregate-function": "for all columns the right name is 'fields.default-aggregate-function'; this one is about a column called 'default'",
    "scan.remove-normalize": "it is Flink's alone: readers here add no operator that normalizes a changelog, so it can be removed",
    "log.scan.remove-normalize": "it is Flink's old name of 'scan.remove-normalize'; readers here add no operator that normalizes a changelog, so it can be removed",
    "lock.timeout": "the right name is 'lock-acquire-timeout' (of a catalog), or 'dredge.lock.acquire-timeout' (of a table)",
}
_PREFIXES: Final[Mapping[str, str]] = {
    "lookup.compact": "'lookup-compact' is radical or gentle, and 'lookup-compact.max-interval' bounds how long gentle waits",
    "compaction.sorted-run": _RUNS,
    "sort-compaction": _SORTING,
    "sort.compaction": _SORTING,
}


def _plain(name: str) -> str:
    return _SEPARATORS.sub("-", name.strip().lower())


_KNOWN: Final[tuple[str, ...]] = tuple(sorted(key.name for key in (*PAIMON_KEYS, *DREDGE_KEYS)))
_RIGHT: Final = frozenset(
    (*_KNOWN, *FLINK_READING, *(alias for key in (*PAIMON_KEYS, *DREDGE_KEYS) for alias in key.aliases))
)
_BY_PLAIN: Final[Mapping[str, str]] = {_plain(name): name for name in _KNOWN}


@lru_cache(maxsize=1024)
def advice_on(name: str) -> str:
    """Return a sentence that names the right option for ``name``, "" where it is right already or resembles no known one."""
    if name in _EXACT:
        return _EXACT[name]
    if name in _RIGHT or family_key(name) is not None:
        return ""
    same = _BY_PLAIN.get(_plain(name))
    if same is not None:
        return f"the right name is '{same}'"
    for prefix, advice in _PREFIXES.items():
        if name.lower().startswith(prefix):
            return advice
    near = get_close_matches(name.lower(), _KNOWN, 1, _NEAR)
    return f"did you mean '{near[0]}'?" if near else ""


def misnamed(options: Iterable[str]) -> dict[str, str]:
    """Return the options that have another right name, each with the sentence that says so, sorted by name."""
    advice = {name: advice_on(name) for name in sorted(options)}
    return {name: text for name, text in advice.items() if text}
