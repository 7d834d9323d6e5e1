"""Sources of the columns of a merged row: the version of the key that supplied each column, per merge engine.

Source classes: Java's merge functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from lsm_core.format.schema import VALUE_KIND
from lsm_core.merge import MergeFunction
from lsm_core.merge.engines.aggregation import Aggregation
from lsm_core.merge.engines.deduplicate import Deduplicate
from lsm_core.merge.engines.first_row import FirstRow
from lsm_core.merge.engines.partial_update import PartialUpdate
from lsm_core.merge.engines.sequence_group import SequenceGroup
from lsm_core.merge.functions import AGG, KEEP, LATE, RETRACT, SKIP, AggregateFunction, PickAggregate
from lsm_core.merge.functions.base import Operations
from lsm_core.merge.keys import order_parts

DELETE = 3
_ROLES = {AGG: "input", LATE: "late: taken as if it came first", RETRACT: "takes back", SKIP: "passed over"}
"""Role texts by operation of an aggregate function."""


@dataclass(frozen=True, eq=False)
class Versions:
    """Versions of one key that reads see, in merge order.

    Attributes:
        batch: KV batch with one row per version.
    """

    batch: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @cached_property
    def kinds(self) -> list[int]:
        """Row kinds: 0 +I, 1 -U, 2 +U, 3 -D."""
        return [int(kind) for kind in self.batch.column(VALUE_KIND).to_pylist()]

    def retracts(self, place: int) -> bool:
        """Return whether the version at index ``place`` of the merge order is a retract (-U, -D)."""
        return self.kinds[place] % 2 == 1

    @cached_property
    def _valid(self) -> dict[str, list[bool]]:
        return {name: self.batch.column(name).is_valid().to_pylist() for name in self.batch.schema.names}

    def holds(self, name: str, place: int) -> bool:
        """Return whether a version has a value in a column.

        Args:
            name: name of the column.
            place: index of the version in merge order.
        """
        return self._valid[name][place]


@dataclass(frozen=True)
class Supply:
    """Source of a column's value.

    Attributes:
        places: indexes, in merge order, of the versions that supplied the value.
        why: reason for the choice.
        roles: effect of each version on the column as text, by index of the version.
    """

    places: tuple[int, ...]
    why: str
    roles: Mapping[int, str] = field(default_factory=dict)


def supply_by_version(winner: int | None, why: str, others: Mapping[int, str]) -> Supply:
    """Return the source of a value that a single version supplied.

    Args:
        winner: index of the version, None if no version supplies the value.
        why: reason for the choice.
        others: effect of each version except ``winner``, by index.
    """
    roles = dict(others)
    if winner is not None:
        roles[winner] = why
    return Supply(() if winner is None else (winner,), why, roles)


def supply_by_aggregate(
    versions: Versions,
    function: AggregateFunction,
    ops: Operations,
    base: int | None,
    reasons: Mapping[int, str],
    has_input: bool,
) -> Supply:
    """Return the source of a value that an aggregate function computed.

    Args:
        versions: versions of the key.
        function: the aggregate function.
        ops: operation per version: aggregate, aggregate as late input, retract or skip.
        base: index of the version with whose row the merge started, or None.
        reasons: reasons why versions are skipped, by index.
        has_input: whether the function has state from inputs before these versions.
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
        return _supply_by_pick(versions, function, ops, base, roles, has_input)
    inputs = [place for place, is_shown in enumerate(shown) if is_shown and versions.holds(name, place)]
    places = ([base] if base is not None and versions.holds(name, base) else []) + inputs
    retracted = sum(int(ops[place]) == RETRACT for place in inputs)
    late = sum(int(ops[place]) == LATE for place in inputs)
    more = [f"{late} of them late"] * bool(late) + [f"{retracted} taken back"] * bool(retracted)
    counted = f"{len(places)} value{'s' if len(places) != 1 else ''}"
    return Supply(tuple(dict.fromkeys(places)), ", ".join([f"{function.name} of {counted}", *more]), roles)


def _supply_by_pick(
    versions: Versions,
    function: PickAggregate,
    ops: Operations,
    base: int | None,
    roles: dict[int, str],
    has_input: bool,
) -> Supply:
    """Return the source of a value that an aggregate function picked among its inputs.

    Args:
        versions: versions of the key.
        function: the aggregate function.
        ops: operation per version: aggregate, aggregate as late input, retract or skip.
        base: index of the version with whose row the merge started, or None.
        roles: effect of each version on the column, as text for people, by index of the version.
        has_input: whether the function has state from inputs before these versions.
    """
    values = versions.batch.column(function.field)
    initial = values.slice(base, 1) if base is not None else pa.nulls(1, values.type)
    filled = np.array([base is not None and values[base].is_valid])
    folding = function.prepare(values, np.array([0, len(values)]), ops)
    picks, _ = function.pick(folding, filled, np.array([has_input]), initial)
    pick = int(picks[0])
    if pick >= 0:
        place = int(folding.original(picks)[0])
        return Supply((place,), function.name, {**roles, place: f"{function.name}: this one"})
    if pick == KEEP and base is not None:
        return Supply((base,), f"{function.name}: what the row began with", roles)
    return Supply((), f"{function.name}: no version supplies a value", roles)


_IGNORED_DELETE = "a delete, ignored (ignore-delete)"


def supplies(function: MergeFunction, versions: Versions, columns: list[str]) -> Iterator[tuple[str, Supply]]:
    """Yield, for each column, the column's name and the source of its value in the merged row.

    Args:
        function: merge engine of the table.
        versions: versions of the key, at least one.
        columns: names of the columns.
    """
    if len(versions) == 1:
        only = supply_by_version(0, "the only version", {})
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
    counted = [p for p in range(len(versions)) if not (function.ignore_delete and versions.retracts(p))]
    roles = {p: "replaced by a newer version" if p in counted else _IGNORED_DELETE for p in range(len(versions))}
    return supply_by_version(counted[-1] if counted else None, "the newest version", roles)


def _oldest(versions: Versions) -> Supply:
    adds = [p for p in range(len(versions)) if not versions.retracts(p)]
    roles = {p: "came after the first row" if p in adds else _IGNORED_DELETE for p in range(len(versions))}
    return supply_by_version(adds[0] if adds else None, "the first row", roles)


def _aggregation(function: Aggregation, versions: Versions, name: str) -> Supply:
    if name in function.key_spec.key_columns or function.functions[name].name == "primary-key":
        return supply_by_version(len(versions) - 1, "primary key", {})
    ops = np.array([RETRACT if versions.retracts(p) else AGG for p in range(len(versions))], np.int8)
    base, reasons = None, {}
    if function.remove_on_delete:
        for place, kind in enumerate(versions.kinds):
            if kind == DELETE:
                base = place
        if base is not None:
            ops[: base + 1] = SKIP
            reasons = dict.fromkeys(range(base), "before the delete that reset the row")
    has_input = any(kind != DELETE for kind in versions.kinds[: base or 0])
    return supply_by_aggregate(versions, function.functions[name], ops, base, reasons, has_input)


_ACCEPTED, _LATE, _NO_ORDER, _IGNORED, _RESET = range(5)
_WORDS = {
    _ACCEPTED: "accepted by the group, replaced later",
    _LATE: "late: below the group's ordering fields in force",
    _NO_ORDER: "passed over: all ordering fields of the group are null",
    _IGNORED: "a delete, ignored (ignore-delete)",
    _RESET: "before the delete that reset the row",
}
Rank = tuple[tuple[bool, tuple[int, ...]], ...]


class PartialUpdateReplay:
    """Replay of the merge engine `partial-update` over the versions of one key, to explain each column."""

    def __init__(self, function: PartialUpdate, versions: Versions) -> None:
        self.function, self.versions = function, versions
        self.base: int | None = None
        self.begin = 0
        self._states: dict[SequenceGroup, list[int]] = {group: [] for group in function.groups}
        if versions.retracts(0):
            self.base = 0
        in_force = {group: self._rank(group, 0) if self.base == 0 else None for group in function.groups}
        for place in range(len(versions)):
            removing = False
            for group in function.groups:
                state = self._state(group, place, in_force[group])
                self._states[group].append(state)
                if state == _ACCEPTED:
                    in_force[group] = self._rank(group, place)
                    removing |= group.removes and versions.kinds[place] == DELETE
            plain = function.remove_on_delete and not function.ignore_delete and versions.kinds[place] == DELETE
            if removing or plain:
                self.base, self.begin = place, place + 1
                in_force = {group: self._rank(group, place) for group in function.groups}

    def _state(self, group: SequenceGroup, place: int, in_force: Rank | None) -> int:
        if self.function.ignore_delete and self.versions.retracts(place):
            return _IGNORED
        rank = self._rank(group, place)
        if rank is None:
            return _NO_ORDER
        return _ACCEPTED if in_force is None or rank >= in_force else _LATE

    def _rank(self, group: SequenceGroup, place: int) -> Rank | None:
        """Return the group's ordering fields of the version at index ``place`` as a comparable value.

        Returns None if all of the fields are null.
        """
        fields = tuple((self.versions.holds(name, place), self._parts[name][place]) for name in group.ordering)
        return fields if any(is_valid for is_valid, _ in fields) else None

    @cached_property
    def _parts(self) -> dict[str, list[tuple[int, ...]]]:
        """For each ordering field, one tuple of numbers per version that has the order of the values; () for a null."""
        parts = {}
        for name in (name for group in self.function.groups for name in group.ordering):
            columns = [part.tolist() for part in order_parts(self.versions.batch.column(name))]
            rows = [tuple(int(column[place]) for column in columns) for place in range(len(self.versions))]
            parts[name] = [row if self.versions.holds(name, place) else () for place, row in enumerate(rows)]
        return parts

    # -- explanation of columns ------------------------------------------------------------------------------------

    def supply(self, name: str) -> Supply:
        """Return the source of a column's value.

        Args:
            name: name of the column.
        """
        if name in self.function.key_spec.key_columns:
            return supply_by_version(len(self.versions) - 1, "primary key", {})
        group = self.function.group_of.get(name)
        if group is None:
            return self._ungrouped(name)
        if name in self.function.functions:
            function = self.function.functions[name]
            reasons = {p: _WORDS[state] for p, state in enumerate(self._states_after_resets(group))}
            counted = [
                s in {_ACCEPTED, _LATE} and not self.versions.retracts(p) for p, s in enumerate(self._states[group])
            ]
            has_input = any(counted[: max(self.begin - 1, 0)])
            ops = [
                (RETRACT if self.versions.retracts(place) else AGG if state == _ACCEPTED else LATE)
                if state in {_ACCEPTED, _LATE}
                else SKIP
                for place, state in enumerate(self._states_after_resets(group))
            ]
            return supply_by_aggregate(self.versions, function, np.array(ops, np.int8), self.base, reasons, has_input)
        return self._grouped(name, group)

    def _states_after_resets(self, group: SequenceGroup) -> list[int]:
        """Return how the sequence group treated each version: one state constant per version, in merge order.

        Versions up to the last delete that reset the row have the state `_RESET`.
        """
        return [_RESET if place < self.begin else state for place, state in enumerate(self._states[group])]

    def _ungrouped(self, name: str) -> Supply:
        versions, roles = self.versions, {}
        winner = None
        for place in range(len(versions)):
            if place < self.begin:
                roles[place] = _WORDS[_RESET]
            elif versions.retracts(place):
                roles[place] = "a retract: leaves columns without a sequence group alone"
            elif not versions.holds(name, place):
                roles[place] = "null: leaves the column as it was"
            else:
                roles[place], winner = "replaced by a newer value", place
        if winner is not None:
            return supply_by_version(winner, "the last value that is not null", roles)
        return self._supply_by_base(roles, "no version holds a value")

    def _grouped(self, name: str, group: SequenceGroup) -> Supply:
        states = self._states_after_resets(group)
        roles = {place: _WORDS[state] for place, state in enumerate(states)}
        accepted = [place for place, state in enumerate(states) if state == _ACCEPTED]
        fields = ", ".join(group.ordering)
        if not accepted:
            return self._supply_by_base(roles, f"sequence group {fields} accepted nothing")
        winner = accepted[-1]
        if self.versions.retracts(winner) and name not in group.ordering:
            roles[winner] = f"taken back: the newest by sequence group {fields} is a retract"
            return Supply((), roles[winner], roles)
        return supply_by_version(winner, f"the newest by sequence group {fields}", roles)

    def _supply_by_base(self, roles: dict[int, str], otherwise: str) -> Supply:
        if self.base is None:
            return Supply((), otherwise, roles)
        why = "the row began with this delete's values"
        return supply_by_version(self.base, why, roles)
