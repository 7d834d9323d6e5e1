"""Each merge engine's story of one key: which version supplied which column. Source classes: Java's merge functions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lsm_core.maintenance.row_story.partial_update import PartialUpdateReplay
from lsm_core.maintenance.row_story.replay import DELETE, Supply, Versions, aggregated, picked
from lsm_core.merge import MergeFunction
from lsm_core.merge.engines.aggregation import Aggregation
from lsm_core.merge.engines.deduplicate import Deduplicate
from lsm_core.merge.engines.first_row import FirstRow
from lsm_core.merge.engines.partial_update import PartialUpdate
from lsm_core.merge.functions import AGG, RETRACT, SKIP

_IGNORED = "a delete, ignored (ignore-delete)"


def supplies(function: MergeFunction, versions: Versions, columns: list[str]) -> Iterator[tuple[str, Supply]]:
    """For each column where its value in the merged row comes from; nothing where no version is left."""
    if len(versions) == 1:
        only = picked(0, "the only version", {})
        yield from ((name, only) for name in columns)
    elif isinstance(function, Deduplicate):
        yield from ((name, _newest(function, versions)) for name in columns)
    elif isinstance(function, FirstRow):
        yield from ((name, _oldest(versions)) for name in columns)
    elif isinstance(function, PartialUpdate):
        replay = PartialUpdateReplay(function, versions)
        yield from ((name, replay.supply(name)) for name in columns)
    elif isinstance(function, Aggregation):
        yield from ((name, _aggregation(function, versions, name)) for name in columns)


def _newest(function: Deduplicate, versions: Versions) -> Supply:
    counted = [p for p in range(len(versions)) if not (function.ignore_delete and versions.backs(p))]
    roles = {p: "replaced by a newer version" if p in counted else _IGNORED for p in range(len(versions))}
    return picked(counted[-1] if counted else None, "the newest version", roles)


def _oldest(versions: Versions) -> Supply:
    adds = [p for p in range(len(versions)) if not versions.backs(p)]
    roles = {p: "came after the first row" if p in adds else _IGNORED for p in range(len(versions))}
    return picked(adds[0] if adds else None, "the first row", roles)


def _aggregation(function: Aggregation, versions: Versions, name: str) -> Supply:
    if name in function.key_spec.key_columns or function.functions[name].name == "primary-key":
        return picked(len(versions) - 1, "primary key", {})
    ops = np.array([RETRACT if versions.backs(p) else AGG for p in range(len(versions))], np.int8)
    base, reasons = None, {}
    if function.remove_on_delete:
        for place, kind in enumerate(versions.kinds):
            if kind == DELETE:
                base = place
        if base is not None:
            ops[: base + 1] = SKIP
            reasons = dict.fromkeys(range(base), "before the delete that reset the row")
    begun = any(kind != DELETE for kind in versions.kinds[: base or 0])
    return aggregated(versions, function.functions[name], ops, base, reasons, begun)


__all__ = ["supplies"]
