"""Maps and nested tables: entries with a key of their own, of which the newest stays.

Java: `FieldMergeMapAgg`, `FieldMergeMapWithKeyTimeAgg`, `FieldNestedUpdateAgg`, `FieldNestedPartialUpdateAgg`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from lsm_core.errors import InvalidOption
from lsm_core.merge.comparable import Ints, Mask
from lsm_core.merge.functions.base import INVALID, AggregateFunction, FieldOptions, GroupError
from lsm_core.merge.functions.collection import Collect, _all_null, _valid
from lsm_core.merge.functions.elements import Chains, Flat, ListFold, codes, dense, flattened, rebuilt
from lsm_core.merge.keys import order_parts
from lsm_core.types import DataType, TypeRoot

_STRATEGIES: Final = ("merge", "ignore", "error")
_UNLIMITED: Final = 2**31 - 1


def _last_places(chains: Chains, wanted: Mask) -> Ints:
    """The last element of each chain for which ``wanted`` is true, -1 for none."""
    place = np.concatenate((np.full(1, -1), np.where(wanted[chains.order], np.arange(len(chains.order)), -1)))
    latest = np.maximum.accumulate(place)[chains.ends]
    found = latest >= chains.starts
    return np.where(found, chains.order[np.maximum(latest, 0)] if len(chains.order) else latest, -1)


def _in_first_order(chains: Chains, winners: Ints) -> tuple[Ints, Ints]:
    """Chains in the order in which their keys first came up, and their winners; chains without one (-1) are left out."""
    order = np.argsort(chains.first, kind="stable")
    order = order[winners[order] >= 0]
    return order, winners[order]


class MergeMap(ListFold):
    """All entries; of equal keys the later value. A retract takes keys away."""

    name: ClassVar[str] = "merge_map"
    supports_retract: ClassVar[bool] = True

    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        flat = flattened(lists, bounds)
        chains = Chains.of(flat.group, codes(flat.elements.field(0)))
        _, winners = _in_first_order(chains, chains.last)
        # a winner stands where its key came up first; groups stay together
        ordered = winners[np.argsort(flat.group[winners], kind="stable")]
        return rebuilt(flat.only(ordered), self.arrow_type, _all_null(lists, bounds))

    def _take_back(self, before: pa.Array, taken: pa.Array, bounds: Ints) -> pa.Array:
        held, back = flattened(before, np.arange(len(before) + 1)), flattened(taken, bounds)
        kept = ~_among(held, back, [0])
        return rebuilt(held.only(np.flatnonzero(kept)), self.arrow_type, ~_valid(before))


def _among(held: Flat, back: Flat, fields: list[int]) -> Mask:
    """Which elements of ``held`` share these fields with one of the same group in ``back``."""
    both = pa.concat_arrays([held.elements, back.elements])
    parts = [codes(both.field(place)) for place in fields]
    pair = dense([np.concatenate((held.group, back.group)), *parts])
    count = len(held.group)
    return np.isin(pair[:count], pair[count:])


class MergeMapWithKeyTime(ListFold):
    """Per key the entry with the newest time; a null entry takes the key away, one without a time is passed over."""

    name: ClassVar[str] = "merge_map_with_keytime"

    def __init__(self, kind: DataType, options: FieldOptions) -> None:
        super().__init__(kind, options)
        fields = kind.value.fields if kind.value is not None else ()
        chosen = options.text("ts-field")
        names = [field.name for field in fields]
        if chosen is not None and chosen not in names:
            raise InvalidOption(options.key("ts-field"), chosen, f"one of {', '.join(names)}", options.table)
        self.time_field = names.index(chosen) if chosen is not None else len(names) - 1

    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        flat = flattened(lists, bounds)
        rows = flat.elements.field(1)
        times = rows.field(self.time_field).cast(pa.string())
        gone, timed = ~_valid(rows), _valid(rows) & _valid(times)
        chains = Chains.of(flat.group, codes(flat.elements.field(0)))
        removal = _last_places(chains, gone)
        number = chains.number
        after = np.where(removal >= 0, number[np.maximum(removal, 0)], -1) if len(number) else removal
        counts = timed.copy()
        counts[chains.order] &= number[chains.order] > after[chains.chain_of]
        rank = np.where(counts, dense(order_parts(times.fill_null(""))), -1) if len(number) else np.zeros(0, np.int64)
        # sorted by time, and of equal times the first one last: only a strictly later one replaces
        order = np.lexsort((-number[chains.order], rank[chains.order], chains.chain_of))
        best = chains.order[order][chains.ends - 1] if len(number) else chains.order
        winners = np.where(counts[best], best, -1) if len(number) else best
        _, chosen = _in_first_order(chains, winners)
        ordered = chosen[np.argsort(flat.group[chosen], kind="stable")]
        return rebuilt(flat.only(ordered), self.arrow_type, _all_null(lists, bounds))


class _Nested(ListFold):
    """Rows of a nested table with a key: fields ``nested-key``, and what nulls among them mean."""

    partial: ClassVar[bool] = False

    def __init__(self, kind: DataType, options: FieldOptions) -> None:
        super().__init__(kind, options)
        row = kind.element
        assert row is not None
        names = [field.name for field in row.fields]
        self.keys = _places(options, "nested-key", names)
        self.sequence = _places(options, "nested-sequence-field", names)
        strategy = options.text("nested-key-null-strategy")
        for key, given in (("nested-sequence-field", self.sequence), ("nested-key-null-strategy", strategy)):
            if given and not self.keys:
                value = str(options.text(key))
                raise InvalidOption(
                    options.key(key), value, f"only together with {options.key('nested-key')}", options.table
                )
        if strategy is not None and strategy not in _STRATEGIES:
            raise InvalidOption(
                options.key("nested-key-null-strategy"), strategy, ", ".join(_STRATEGIES), options.table
            )
        self.strategy = strategy or "merge"
        self.limit = _limit(options)

    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        flat = self._with_keys(flattened(lists, bounds), groups)
        code = dense([codes(flat.elements.field(place)) for place in self.keys])
        chains = Chains.of(flat.group, code)
        order = np.argsort(chains.first, kind="stable")
        owner = flat.group[chains.first[order]]
        # the first keys of a group, as many as the limit lets in
        number = np.arange(len(order)) - np.searchsorted(owner, owner, side="left")
        order = order[number < self.limit]
        chosen = self._rows(flat, chains, order)
        return rebuilt(chosen, self.arrow_type, _all_null(lists, bounds))

    def _with_keys(self, flat: Flat, groups: Ints) -> Flat:
        nulls = np.zeros(len(flat.group), np.bool_)
        for place in self.keys:
            nulls |= ~_valid(flat.elements.field(place))
        if not nulls.any() or self.strategy == "merge":
            return flat
        if self.strategy == "error":
            group = int(groups[flat.group[int(np.argmax(nulls))]])
            reason = f"{self.name} of column '{self.field}': null in a field of {self.options.key('nested-key')}"
            raise GroupError(INVALID, group, reason)
        return flat.only(np.flatnonzero(~nulls))

    def _rows(self, flat: Flat, chains: Chains, order: Ints) -> Flat:
        """One row for each chosen chain: the last one, or the one with the greatest sequence fields."""
        winners = chains.last
        if self.sequence and len(chains):
            parts = [part for place in self.sequence for part in order_parts(flat.elements.field(place))]
            rank = dense(parts)
            best = np.lexsort((chains.number[chains.order], rank[chains.order], chains.chain_of))
            winners = chains.order[best][chains.ends - 1]
        return flat.only(winners[order])

    def _take_back(self, before: pa.Array, taken: pa.Array, bounds: Ints) -> pa.Array:
        held, back = flattened(before, np.arange(len(before) + 1)), flattened(taken, bounds)
        back = self._with_keys(back, np.arange(len(before)))
        kept = ~_among(held, back, list(self.keys))
        return rebuilt(held.only(np.flatnonzero(kept)), self.arrow_type, ~_valid(before))


class NestedUpdate(_Nested):
    """Rows are inserted or replaced by key; a retract takes keys away."""

    name: ClassVar[str] = "nested_update"
    supports_retract: ClassVar[bool] = True


class NestedPartialUpdate(_Nested):
    """Rows are merged by key: each field keeps its last value that is not null."""

    name: ClassVar[str] = "nested_partial_update"

    def _rows(self, flat: Flat, chains: Chains, order: Ints) -> Flat:
        columns = []
        for place in range(flat.elements.type.num_fields):
            column = flat.elements.field(place)
            last = _last_places(chains, _valid(column))[order]
            columns.append(column.take(pa.array(np.maximum(last, 0), mask=last < 0)))
        first = chains.first[order]
        fields = [flat.elements.type.field(i) for i in range(flat.elements.type.num_fields)]
        return Flat(pa.StructArray.from_arrays(columns, fields=fields), flat.group[first], first, flat.groups)


class NestedAppend(Collect):
    """Rows without a key: all of them, up to the limit; a retract takes every equal row away."""

    name: ClassVar[str] = "nested_update"
    _late_is_input = False

    def __init__(self, kind: DataType, options: FieldOptions) -> None:
        super().__init__(kind, options)
        self.distinct = False
        self.limit = _limit(options)

    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        flat = flattened(lists, bounds)
        number = np.arange(len(flat.group)) - np.searchsorted(flat.group, flat.group, side="left")
        return rebuilt(flat.only(np.flatnonzero(number < self.limit)), self.arrow_type, _all_null(lists, bounds))

    def _take_back(self, before: pa.Array, taken: pa.Array, bounds: Ints) -> pa.Array:
        held, back = flattened(before, np.arange(len(before) + 1)), flattened(taken, bounds)
        kept = ~_among(held, back, list(range(held.elements.type.num_fields)))
        return rebuilt(held.only(np.flatnonzero(kept)), self.arrow_type, ~_valid(before))


def _places(options: FieldOptions, key: str, names: list[str]) -> tuple[int, ...]:
    chosen = [name.strip() for name in (options.text(key) or "").split(",") if name.strip()]
    for name in chosen:
        if name not in names:
            raise InvalidOption(options.key(key), name, f"fields of the nested row: {', '.join(names)}", options.table)
    return tuple(names.index(name) for name in chosen)


def _limit(options: FieldOptions) -> int:
    text = options.text("count-limit")
    if text is None:
        return _UNLIMITED
    try:
        return int(text)
    except ValueError as error:
        raise InvalidOption(options.key("count-limit"), text, "a whole number", options.table) from error


def _merge_map(kind: DataType, options: FieldOptions) -> AggregateFunction:
    if kind.root is not TypeRoot.MAP:
        raise _refused("merge_map", kind, options, "MAP")
    return MergeMap(kind, options)


def _with_time(kind: DataType, options: FieldOptions) -> AggregateFunction:
    value = kind.value
    if kind.root is not TypeRoot.MAP or value is None or value.root is not TypeRoot.ROW or len(value.fields) < 2:
        raise _refused("merge_map_with_keytime", kind, options, "MAP<K, ROW<...>> with two or more fields")
    return MergeMapWithKeyTime(kind, options)


def _nested_update(kind: DataType, options: FieldOptions) -> AggregateFunction:
    _need_rows("nested_update", kind, options)
    needs_keys = any(options.text(key) for key in ("nested-key", "nested-sequence-field", "nested-key-null-strategy"))
    return NestedUpdate(kind, options) if needs_keys else NestedAppend(kind, options)


def _nested_partial_update(kind: DataType, options: FieldOptions) -> AggregateFunction:
    _need_rows("nested_partial_update", kind, options)
    if not options.text("nested-key"):
        raise InvalidOption(options.key("nested-key"), "", "fields of the nested row", options.table)
    return NestedPartialUpdate(kind, options)


def _need_rows(name: str, kind: DataType, options: FieldOptions) -> None:
    if kind.root is not TypeRoot.ARRAY or kind.element is None or kind.element.root is not TypeRoot.ROW:
        raise _refused(name, kind, options, "ARRAY<ROW<...>>")


def _refused(name: str, kind: DataType, options: FieldOptions, accepted: str) -> InvalidOption:
    return InvalidOption(
        options.key("aggregate-function"), f"{name} on type {kind}", f"this function for {accepted}", options.table
    )


FUNCTIONS: Final[dict[str, Any]] = {
    "merge_map": _merge_map,
    "merge_map_with_keytime": _with_time,
    "nested_update": _nested_update,
    "nested_partial_update": _nested_partial_update,
}
