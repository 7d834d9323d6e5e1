"""Functions `collect`, `merge_map` and `merge_map_with_keytime`."""

from __future__ import annotations

from typing import Any, Final

from lsm_core.maintenance.reference.functions.base import Function, NullsChangeNothing
from lsm_core.maintenance.reference.versions import Entries, distinct, same


class Collect(Function):
    """Concatenation of arrays; with `distinct` each element once."""

    def agg(self, acc: Any, value: Any) -> Any:
        """Return the accumulator's elements followed by the input's."""
        if acc is None and value is None:
            return None
        if self.field.flag("distinct"):
            return distinct([*(acc or []), *(value or [])])
        return value if acc is None else acc if value is None else [*acc, *value]

    def agg_reversed(self, acc: Any, value: Any) -> Any:
        """Return the accumulator's elements followed by those of a late input."""
        return self.agg(acc, value)

    def retract(self, acc: Any, value: Any) -> Any:
        """Return the list ``acc`` without the elements of ``value``, each removed once, at its first occurrence."""
        if acc is None or not value:
            return acc
        retracted = [same(item) for item in value]
        kept = []
        for item in acc:
            if same(item) in retracted:
                retracted.remove(same(item))
            else:
                kept.append(item)
        return kept


class MergeMap(NullsChangeNothing):
    """Union of maps; for equal keys, the entry of the newer input wins."""

    def combine(self, acc: Entries, value: Entries) -> Entries:
        """Return the entries of the accumulator, overwritten by those of the input."""
        entries = {same(key): (key, item) for key, item in acc}
        entries.update({same(key): (key, item) for key, item in value})
        return Entries(entries.values())

    def retract(self, acc: Any, value: Any) -> Any:
        """Return the accumulator's entries without the keys of the input."""
        if acc is None or value is None:
            return acc
        keys = {same(key) for key, _ in value}
        return Entries((key, item) for key, item in acc if same(key) not in keys)


class MergeMapWithKeytime(NullsChangeNothing):
    """Per key the row whose time, compared as text, is greatest; a null row removes the key."""

    def combine(self, acc: Entries, value: Entries) -> Entries:
        """Return the entries of accumulator and input; of two entries with the same key, that with the greater time.

        An entry of the input with a null row removes the key; an entry without a time is ignored.
        """
        entries = {same(key): (key, item) for key, item in acc}
        for key, item in value:
            if item is None:
                entries.pop(same(key), None)
                continue
            mine = self._time(item)
            if mine is None:
                continue
            current = entries.get(same(key))
            other = None if current is None or current[1] is None else self._time(current[1])
            if other is None or mine > other:
                entries[same(key)] = key, item
        return Entries(entries.values())

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
