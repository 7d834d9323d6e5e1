"""A partial-update key told row by row: what each sequence group accepted, what came late, and what a delete reset."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lsm_core.maintenance.row_story.replay import DELETE, Supply, Versions, aggregated, picked
from lsm_core.merge.engines.partial_update import PartialUpdate
from lsm_core.merge.engines.sequence_group import SequenceGroup
from lsm_core.merge.functions import AGG, LATE, RETRACT, SKIP
from lsm_core.merge.functions.base import Operations
from lsm_core.merge.keys import order_parts

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
    """Walks the versions of one key once; then tells of any column."""

    def __init__(self, function: PartialUpdate, versions: Versions) -> None:
        self.function, self.versions = function, versions
        self.base: int | None = None
        self.begin = 0
        self._states: dict[SequenceGroup, list[int]] = {group: [] for group in function.groups}
        self._walk()

    def _walk(self) -> None:
        versions, function = self.versions, self.function
        if versions.backs(0):
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
        if self.function.ignore_delete and self.versions.backs(place):
            return _IGNORED
        rank = self._rank(group, place)
        if rank is None:
            return _NO_ORDER
        return _ACCEPTED if in_force is None or rank >= in_force else _LATE

    def _rank(self, group: SequenceGroup, place: int) -> Rank | None:
        """The ordering fields of a version as something that compares; None if all are null."""
        fields = tuple((self.versions.holds(name, place), self._parts[name][place]) for name in group.ordering)
        return fields if any(there for there, _ in fields) else None

    @cached_property
    def _parts(self) -> dict[str, list[tuple[int, ...]]]:
        """For every ordering field numbers that order as its values do, one tuple a version; nulls all alike."""
        found = {}
        for name in (name for group in self.function.groups for name in group.ordering):
            columns = [part.tolist() for part in order_parts(self.versions.batch.column(name))]
            rows = [tuple(int(column[place]) for column in columns) for place in range(len(self.versions))]
            found[name] = [row if self.versions.holds(name, place) else () for place, row in enumerate(rows)]
        return found

    # -- telling ---------------------------------------------------------------------------------------------------

    def supply(self, name: str) -> Supply:
        """Where the value of a column comes from."""
        if name in self.function.key_spec.key_columns:
            return picked(len(self.versions) - 1, "primary key", {})
        group = self.function.group_of.get(name)
        if group is None:
            return self._loose(name)
        if name in self.function.functions:
            function = self.function.functions[name]
            reasons = {p: _WORDS[state] for p, state in enumerate(self._seen(group))}
            given = [s in {_ACCEPTED, _LATE} and not self.versions.backs(p) for p, s in enumerate(self._states[group])]
            begun = any(given[: max(self.begin - 1, 0)])
            return aggregated(self.versions, function, self._operations(group), self.base, reasons, begun)
        return self._of_group(name, group)

    def _seen(self, group: SequenceGroup) -> list[int]:
        """What became of each version, with those that a later delete made void."""
        return [_RESET if place < self.begin else state for place, state in enumerate(self._states[group])]

    def _operations(self, group: SequenceGroup) -> Operations:
        ops = []
        for place, state in enumerate(self._seen(group)):
            if state not in {_ACCEPTED, _LATE}:
                ops.append(SKIP)
            else:
                ops.append(RETRACT if self.versions.backs(place) else AGG if state == _ACCEPTED else LATE)
        return np.array(ops, np.int8)

    def _loose(self, name: str) -> Supply:
        versions, roles = self.versions, {}
        winner = None
        for place in range(len(versions)):
            if place < self.begin:
                roles[place] = _WORDS[_RESET]
            elif versions.backs(place):
                roles[place] = "a retract: leaves columns without a sequence group alone"
            elif not versions.holds(name, place):
                roles[place] = "null: leaves the column as it was"
            else:
                roles[place], winner = "replaced by a newer value", place
        if winner is not None:
            return picked(winner, "the last value that is not null", roles)
        return self._began_with(roles, "no version holds a value")

    def _of_group(self, name: str, group: SequenceGroup) -> Supply:
        states = self._seen(group)
        roles = {place: _WORDS[state] for place, state in enumerate(states)}
        accepted = [place for place, state in enumerate(states) if state == _ACCEPTED]
        fields = ", ".join(group.ordering)
        if not accepted:
            return self._began_with(roles, f"sequence group {fields} accepted nothing")
        winner = accepted[-1]
        if self.versions.backs(winner) and name not in group.ordering:
            roles[winner] = f"taken back: the newest by sequence group {fields} is a retract"
            return Supply((), roles[winner], roles)
        return picked(winner, f"the newest by sequence group {fields}", roles)

    def _began_with(self, roles: dict[int, str], otherwise: str) -> Supply:
        if self.base is None:
            return Supply((), otherwise, roles)
        why = "the row began with this delete's values"
        return picked(self.base, why, roles)


__all__ = ["PartialUpdateReplay"]
