"""Merging one key slowly, to tell which version did what to which column. The engine itself gives the answer; this tells why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from lsm_core.format.kv_layout import VALUE_KIND
from lsm_core.merge.functions import AGG, KEEP, LATE, RETRACT, SKIP, AggregateFunction, PickAggregate
from lsm_core.merge.functions.base import Operations

DELETE = 3
_ROLES = {AGG: "input", LATE: "late: taken as if it came first", RETRACT: "takes back", SKIP: "passed over"}


@dataclass(frozen=True, eq=False)
class Versions:
    """The versions of one key that reads see, in merge order: a KV batch, one row each."""

    batch: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @cached_property
    def kinds(self) -> list[int]:
        """Row kinds: 0 +I, 1 -U, 2 +U, 3 -D."""
        return [int(kind) for kind in self.batch.column(VALUE_KIND).to_pylist()]

    def backs(self, place: int) -> bool:
        """Whether a version takes back (-U, -D)."""
        return self.kinds[place] % 2 == 1

    @cached_property
    def _valid(self) -> dict[str, list[bool]]:
        return {name: self.batch.column(name).is_valid().to_pylist() for name in self.batch.schema.names}

    def holds(self, name: str, place: int) -> bool:
        """Whether a version has a value in a column."""
        return self._valid[name][place]


@dataclass(frozen=True)
class Supply:
    """Where a column's value comes from: places among the versions, why, and what each version did."""

    places: tuple[int, ...]
    why: str
    roles: Mapping[int, str] = field(default_factory=dict)


def picked(winner: int | None, why: str, others: Mapping[int, str]) -> Supply:
    """One version supplies everything."""
    roles = dict(others)
    if winner is not None:
        roles[winner] = why
    return Supply(() if winner is None else (winner,), why, roles)


def aggregated(
    versions: Versions,
    function: AggregateFunction,
    ops: Operations,
    base: int | None,
    reasons: Mapping[int, str],
    begun: bool,
) -> Supply:
    """What an aggregate function made of its inputs, on top of version ``base``; ``reasons``: why versions are passed over.

    ``begun``: the function was given inputs before those, which it remembers.
    """
    name = function.field
    shown = [op != SKIP and not (op == RETRACT and function.ignore_retract) for op in ops.tolist()]
    roles = {}
    for place, op in enumerate(ops.tolist()):
        roles[place] = (
            _ROLES[op] if shown[place] else "retract ignored" if op == RETRACT else reasons.get(place, _ROLES[SKIP])
        )
        if shown[place] and not versions.holds(name, place):
            roles[place] += " (null)"
    if base is not None:
        roles[base] = "what the row began with"
    if isinstance(function, PickAggregate):
        return _one_input(versions, function, ops, base, roles, begun)
    inputs = [place for place, there in enumerate(shown) if there and versions.holds(name, place)]
    places = ([base] if base is not None and versions.holds(name, base) else []) + inputs
    taken = sum(int(ops[place]) == RETRACT for place in inputs)
    late = sum(int(ops[place]) == LATE for place in inputs)
    more = [f"{late} of them late"] * bool(late) + [f"{taken} taken back"] * bool(taken)
    counted = f"{len(places)} value{'s' if len(places) != 1 else ''}"
    return Supply(tuple(dict.fromkeys(places)), ", ".join([f"{function.name} of {counted}", *more]), roles)


def _one_input(
    versions: Versions,
    function: PickAggregate,
    ops: Operations,
    base: int | None,
    roles: dict[int, str],
    begun: bool,
) -> Supply:
    """The function's own choice."""
    values = versions.batch.column(function.field)
    initial = values.slice(base, 1) if base is not None else pa.nulls(1, values.type)
    filled = np.array([base is not None and values[base].is_valid])
    folding = function.prepared(values, np.array([0, len(values)]), ops)
    picks, _ = function.pick(folding, filled, np.array([begun]), initial)
    pick = int(picks[0])
    if pick >= 0:
        place = int(folding.original(picks)[0])
        return Supply((place,), function.name, {**roles, place: f"{function.name}: this one"})
    if pick == KEEP and base is not None:
        return Supply((base,), f"{function.name}: what the row began with", roles)
    return Supply((), f"{function.name}: no version supplies a value", roles)


__all__ = ["DELETE", "Supply", "Versions", "aggregated", "picked"]
