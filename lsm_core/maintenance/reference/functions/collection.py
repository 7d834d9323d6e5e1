"""collect and the functions of maps."""

from __future__ import annotations

from typing import Any, Final

from lsm_core.maintenance.reference.equality import Entries, distinct, same
from lsm_core.maintenance.reference.functions.base import Function, NullsChangeNothing


class Collect(Function):
    """Arrays end to end; with `distinct` each element once."""

    def agg(self, acc: Any, value: Any) -> Any:
        """The accumulator's elements, then the input's."""
        if acc is None and value is None:
            return None
        if self.field.flag("distinct"):
            return distinct([*(acc or []), *(value or [])])
        return value if acc is None else acc if value is None else [*acc, *value]

    def agg_reversed(self, acc: Any, value: Any) -> Any:
        """Late elements come last too."""
        return self.agg(acc, value)

    def retract(self, acc: Any, value: Any) -> Any:
        """Without the first occurrence of each element taken back."""
        if acc is None or not value:
            return acc
        gone = [same(item) for item in value]
        left = []
        for item in acc:
            if same(item) in gone:
                gone.remove(same(item))
            else:
                left.append(item)
        return left


class MergeMap(NullsChangeNothing):
    """Entries of both, the input's win."""

    def both(self, acc: Entries, value: Entries) -> Entries:
        """All entries of the accumulator, then those of the input over them."""
        found = {same(key): (key, item) for key, item in acc}
        found.update({same(key): (key, item) for key, item in value})
        return Entries(found.values())

    def retract(self, acc: Any, value: Any) -> Any:
        """Without the keys of the input."""
        if acc is None or value is None:
            return acc
        gone = {same(key) for key, _ in value}
        return Entries((key, item) for key, item in acc if same(key) not in gone)


class MergeMapWithKeytime(NullsChangeNothing):
    """Per key the row whose time, compared as text, is greatest; a null row takes the key away."""

    def both(self, acc: Entries, value: Entries) -> Entries:
        """Entries of the input win where their time is greater than what is there."""
        found = {same(key): (key, item) for key, item in acc}
        for key, item in value:
            if item is None:
                found.pop(same(key), None)
                continue
            mine = self._time(item)
            if mine is None:
                continue
            there = found.get(same(key))
            other = None if there is None or there[1] is None else self._time(there[1])
            if other is None or mine > other:
                found[same(key)] = key, item
        return Entries(found.values())

    def _time(self, item: tuple[Any, ...]) -> bytes | None:
        row = self.field.type.value
        assert row is not None
        names = [field.name for field in row.fields]
        named = self.field.text("ts-field")
        value = item[names.index(named) if named else -1]
        return None if value is None else str(value).encode()


FUNCTIONS: Final[dict[str, type[Function]]] = {
    "collect": Collect,
    "merge_map": MergeMap,
    "merge_map_with_keytime": MergeMapWithKeytime,
}
