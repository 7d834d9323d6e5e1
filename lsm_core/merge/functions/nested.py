"""Maps and nested tables: entries with a key of their own, of which the newest stays.

Java: `FieldMergeMapAgg`, `FieldMergeMapWithKeyTimeAgg`, `FieldNestedUpdateAgg`, `FieldNestedPartialUpdateAgg`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import offsets_from, slice_places
from lsm_core.errors import InvalidOption
from lsm_core.merge.comparable import Ints, Mask
from lsm_core.merge.functions.base import INVALID, AggregateFunction, FieldOptions, GroupError
from lsm_core.merge.functions.collection import Collect, _all_null
from lsm_core.merge.functions.elements import Chains, Flat, ListFold, _valid, codes, dense, flattened, rebuilt
from lsm_core.merge.keys import order_parts
from lsm_core.options import PaimonVersion
from lsm_core.types import DataType, TypeRoot

_STRATEGIES: Final = ("merge", "ignore", "error")
_UNLIMITED: Final = 2**31 - 1
_FIRST_WINDOW: Final = 4
"""Inputs of a group that are looked at together at first."""


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


def _in_first_list(lists: pa.Array, bounds: Ints, flat: Flat) -> Mask:
    """Which elements belong to the first list of their group that is not null: what the others are added to."""
    valid = np.append(_valid(lists), True)
    soonest = np.minimum.accumulate(np.where(valid, np.arange(len(valid)), len(valid))[::-1])[::-1]
    return np.asarray(flat.source == soonest[bounds[:-1]][flat.group], np.bool_)


class MergeMapWithKeyTime(ListFold):
    """Per key the entry with the newest time; a null entry takes the key away, one without a time is passed over.

    The map that a fold begins with stays as it is.
    """

    name: ClassVar[str] = "merge_map_with_keytime"
    _late_one_by_one = True

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
        head = _in_first_list(lists, bounds, flat)
        gone, timed = ~_valid(rows) & ~head, _valid(rows) & _valid(times)
        chains = Chains.of(flat.group, codes(flat.elements.field(0)))
        removal = _last_places(chains, gone)
        number = chains.number
        after = np.where(removal >= 0, number[np.maximum(removal, 0)], -1) if len(number) else removal
        counts = timed | head
        counts[chains.order] &= number[chains.order] > after[chains.chain_of]
        rank = dense(order_parts(times.fill_null(""))) if len(number) else np.zeros(0, np.int64)
        rank = np.where(counts, np.where(timed, rank, -1), -2)
        # sorted by time, and of equal times the first one last: only a strictly later one replaces
        order = np.lexsort((-number[chains.order], rank[chains.order], chains.chain_of))
        best = chains.order[order][chains.ends - 1] if len(number) else chains.order
        winners = np.where(counts[best], best, -1) if len(number) else best
        _, chosen = _in_first_order(chains, winners)
        ordered = chosen[np.argsort(flat.group[chosen], kind="stable")]
        return rebuilt(flat.only(ordered), self.arrow_type, _all_null(lists, bounds))


def _begun(lists: pa.Array, bounds: Ints, with_null: bool) -> tuple[Ints, Mask]:
    """The list of each group that inputs are added to, and whether one that is not null is: else it stays as it is.

    ``with_null``: it is the foremost even where that is null (since 2.0), else the first that is not (until then the first input
    took the place of a null accumulator untouched).
    """
    valid = _valid(lists)
    base = bounds[:-1]
    if not with_null:
        number = np.append(np.where(valid, np.arange(len(valid)), len(valid)), len(valid))
        base = np.minimum(np.minimum.accumulate(number[::-1])[::-1][base], bounds[1:] - 1)
    counts = offsets_from(valid)
    return base, np.asarray(counts[bounds[1:]] > counts[base + 1], np.bool_)


def _lengths(lists: pa.Array) -> Ints:
    """How many rows each list has, null ones among them; null: 0."""
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)


def _chosen(first: Mask, yes: pa.Array, no: pa.Array) -> pa.Array:
    """Row by row one of two arrays."""
    if not first.any():
        return no
    place = np.arange(len(first))
    return pa.concat_arrays([yes, no]).take(pa.array(np.where(first, place, len(first) + place)))


class _Nested(ListFold):
    """Rows of a nested table with a key: fields ``nested-key``, and what nulls among them mean. Rows that are null go.

    Where versions of Paimon answer differently the table's is followed, and 2.0 for columns with options that 1.4 does not know.
    """

    _late_one_by_one = True
    limited: ClassVar[bool] = True
    """Whether `count-limit` bounds the number of rows."""

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
        self.limit = _limit(options) if self.limited else _UNLIMITED
        newer = strategy is not None or bool(self.sequence)
        self.since_2_0 = newer or options.version.at_least(PaimonVersion.V2_0)

    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        if self.limit != _UNLIMITED and not self.since_2_0:
            return self._one_after_another(lists, bounds)
        base, added = _begun(lists, bounds, self.since_2_0)
        flat = flattened(lists, bounds)
        flat = self._with_keys(flat.only(np.flatnonzero(added[flat.group] & _valid(flat.elements))), groups)
        chains = Chains.of(flat.group, dense([codes(flat.elements.field(place)) for place in self.keys]))
        order = np.argsort(chains.first, kind="stable")
        first = chains.first[order]
        owner = flat.group[first]
        # beside the keys of the list that is there, the first ones of a group, as many as the limit lets in
        number = np.arange(len(order)) - np.searchsorted(owner, owner, side="left")
        order = order[(number < self.limit) | (flat.source[first] == base[owner])]
        made = rebuilt(self._rows(flat, chains, order), self.arrow_type, np.zeros(len(base), np.bool_))
        return _chosen(~added, lists.take(pa.array(base)), made)

    def _one_after_another(self, lists: pa.Array, bounds: Ints) -> pa.Array:
        """A limit as 1.4 has it: of each input as many rows as are missing, whether their keys are there or not.

        What an input leaves out depends on how many keys the ones before it had, so each group takes a few inputs at a time, until
        it is full.
        """
        base, _ = _begun(lists, bounds, with_null=False)
        owner = np.repeat(np.arange(len(base)), np.diff(bounds))
        inputs = np.flatnonzero(_valid(lists) & (np.arange(len(lists)) > base[owner]))
        ends = np.cumsum(np.bincount(owner[inputs], minlength=len(base)))
        following, window = np.append(0, ends[:-1]), np.full(len(base), _FIRST_WINDOW)
        groups, held = np.arange(len(base)), lists.take(pa.array(base))
        finished, parts = [groups[:0]], [held.slice(0, 0)]
        while len(groups):
            going = (following[groups] < ends[groups]) & (_lengths(held) < self.limit)
            finished.append(groups[~going])
            parts.append(held.filter(pa.array(~going)))
            groups, held = groups[going], held.filter(pa.array(going))
            sizes = np.minimum(window[groups], ends[groups] - following[groups])
            held, taken = self._filled_up(
                held, lists.take(pa.array(inputs[slice_places(following[groups], sizes)])), sizes
            )
            following[groups] += taken
            window[groups] = np.where(taken == sizes, 2 * sizes, taken)
        order = np.argsort(np.concatenate(finished), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(order))

    def _filled_up(self, held: pa.Array, given: pa.Array, sizes: Ints) -> tuple[pa.Array, Ints]:
        """Each list of ``held`` with the first rows of its inputs (``sizes`` of them), by key the last one; and how many were taken.

        As long as no key is new all inputs have the same room, and as long as all rows fit nothing is cut: whichever of the two
        goes on longer, the inputs up to its end are taken at once.
        """
        count = len(held)
        bounds = offsets_from(sizes + 1)
        first, own = bounds[:-1], np.zeros(int(bounds[-1]), np.bool_)
        own[first] = True
        place = np.empty(len(own), np.int64)
        place[own], place[~own] = np.arange(count), count + np.arange(len(given))
        flat = flattened(pa.concat_arrays([held, given]).take(pa.array(place)), bounds)
        flat = flat.only(np.flatnonzero(_valid(flat.elements)))
        room = self.limit - _lengths(held)
        of_held = own[flat.source]
        number = np.arange(len(flat.source)) - np.searchsorted(flat.source, flat.source, side="left")
        # how many rows there are up to the end of each input
        rows = np.bincount(flat.source[~of_held], minlength=len(own))
        whole = np.cumsum(rows)
        whole -= np.repeat(whole[first] - rows[first], sizes + 1)
        owner = np.repeat(np.arange(count), sizes + 1)
        fit = np.bincount(owner[(whole <= room[owner]) & ~own], minlength=count)
        flat_rows = np.flatnonzero(of_held | (number < room[flat.group]))
        flat = flat.only(flat_rows)
        code = dense([codes(flat.elements.field(place)) for place in self.keys])
        first_of = Chains.of(flat.group, code).first
        known = own[flat.source[first_of]]
        new = first_of[~known]
        # the first input with a new key, counted from 1; a list whose rows that are null or twice are about to go has more room then
        keys = np.bincount(flat.group[first_of[known]], minlength=count)
        fresh = np.where(keys == _lengths(held), sizes, 1)
        np.minimum.at(fresh, flat.group[new], flat.source[new] - first[flat.group[new]])
        taken = np.maximum(fit, fresh)
        kept = np.flatnonzero(flat.source - first[flat.group] <= taken[flat.group])
        flat, code = flat.only(kept), code[kept]
        chains = Chains.of(flat.group, code)
        order = np.argsort(chains.first, kind="stable")
        return rebuilt(self._rows(flat, chains, order), self.arrow_type, np.zeros(count, np.bool_)), taken

    def _with_keys(self, flat: Flat, groups: Ints) -> Flat:
        if self.strategy == "merge":
            return flat
        nulls = np.zeros(len(flat.group), np.bool_)
        for place in self.keys:
            nulls |= ~_valid(flat.elements.field(place))
        nulls &= _valid(flat.elements)
        if self.strategy == "error" and nulls.any():
            group = int(groups[flat.group[int(np.argmax(nulls))]])
            reason = f"{self.name} of column '{self.field}': null in a field of {self.options.key('nested-key')}"
            raise GroupError(INVALID, group, reason)
        return flat.only(np.flatnonzero(~nulls & _valid(flat.elements)))

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
        untouched = _all_null(taken, bounds)
        # from nothing nothing is taken, so nobody looks at the keys
        back = back.only(np.flatnonzero(_valid(back.elements) & _valid(before)[back.group]))
        back = self._with_keys(back, np.arange(len(before)))
        held = held.only(np.flatnonzero(_valid(held.elements) & ~untouched[held.group]))
        held = self._with_keys(held, np.arange(len(before)))
        # what is left is a table with one row a key
        chains = Chains.of(held.group, dense([codes(held.elements.field(place)) for place in self.keys]))
        _, winners = _in_first_order(chains, chains.last)
        left = held.only(winners)
        left = left.only(np.flatnonzero(~_among(left, back, list(self.keys))))
        return _chosen(untouched, before, rebuilt(left, self.arrow_type, ~_valid(before)))


class NestedUpdate(_Nested):
    """Rows are inserted or replaced by key; a retract takes keys away."""

    name: ClassVar[str] = "nested_update"
    supports_retract: ClassVar[bool] = True


class NestedPartialUpdate(_Nested):
    """Rows are merged by key: each field keeps its last value that is not null."""

    name: ClassVar[str] = "nested_partial_update"
    limited: ClassVar[bool] = False

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
    _late_one_by_one = True

    def __init__(self, kind: DataType, options: FieldOptions) -> None:
        super().__init__(kind, options)
        self.distinct = False
        self.limit = _limit(options)
        self.since_2_0 = options.version.at_least(PaimonVersion.V2_0)

    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        base, added = _begun(lists, bounds, self.since_2_0)
        held, number_of = lists.take(pa.array(base)), offsets_from(_valid(lists))
        sizes = _lengths(held)
        added &= (sizes < self.limit) | ~_valid(held)
        flat = flattened(lists, bounds)
        rows = flat.only(np.flatnonzero(added[flat.group] & _valid(flat.elements)))
        own = rows.source == base[rows.group]
        # rows that are null go, but of the room that they took the next input gets nothing
        gone = sizes - np.bincount(rows.group[own], minlength=len(base))
        if (gone[added] > 0).any():
            next_one = number_of[rows.source] == number_of[base + 1][rows.group]
            kept = own | ~next_one | (_within(rows) < (self.limit - gone)[rows.group])
            rows = rows.only(np.flatnonzero(kept))
            own = rows.source == base[rows.group]
        rows = rows.only(np.flatnonzero(own | (_within(rows) < self.limit)))
        return _chosen(~added, held, rebuilt(rows, self.arrow_type, np.zeros(len(base), np.bool_)))

    def _take_back(self, before: pa.Array, taken: pa.Array, bounds: Ints) -> pa.Array:
        held, back = flattened(before, np.arange(len(before) + 1)), flattened(taken, bounds)
        rows, back = held.only(np.flatnonzero(_valid(held.elements))), back.only(np.flatnonzero(_valid(back.elements)))
        kept = ~_among(rows, back, list(range(rows.elements.type.num_fields)))
        left = rebuilt(rows.only(np.flatnonzero(kept)), self.arrow_type, ~_valid(before))
        return _chosen(_all_null(taken, bounds), before, left)


def _within(flat: Flat) -> Ints:
    """For each element how many of its group come before it."""
    return np.arange(len(flat.group)) - np.searchsorted(flat.group, flat.group, side="left")


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
