"""Aggregate functions of maps and nested tables: of entries with the same key, the newest entry is kept.

Source: ``FieldMergeMapAgg``, ``FieldMergeMapWithKeyTimeAgg``, ``FieldNestedUpdateAgg``,
``FieldNestedPartialUpdateAgg``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import offsets_from, slice_places
from lsm_core.errors import InvalidOption
from lsm_core.merge.functions.base import INVALID, AggregateFunction, FieldOptions, GroupError
from lsm_core.merge.functions.collection import Collect, _all_null
from lsm_core.merge.functions.elements import Chains, Flat, ListFold, _valid, codes, dense, flatten_lists, rebuild_lists
from lsm_core.merge.keys import Ints, Mask, order_parts
from lsm_core.options import PaimonVersion
from lsm_core.types import DataType, TypeRoot

_STRATEGIES: Final = ("merge", "ignore", "error")
_UNLIMITED: Final = 2**31 - 1
_FIRST_WINDOW: Final = 4
"""Number of inputs of a group that are processed together in the first round."""


def _last_places(chains: Chains, rows: Mask) -> Ints:
    """Return, per chain of rows with equal keys, the last row that is in the mask ``rows``; -1 for none."""
    place = np.concatenate((np.full(1, -1), np.where(rows[chains.order], np.arange(len(chains.order)), -1)))
    latest = np.maximum.accumulate(place)[chains.ends]
    has_any = latest >= chains.starts
    return np.where(has_any, chains.order[np.maximum(latest, 0)] if len(chains.order) else latest, -1)


def _in_first_order(chains: Chains, winners: Ints) -> tuple[Ints, Ints]:
    """Return the chains (rows with equal keys) to keep, in the order of their first rows.

    Args:
        chains: elements with the same key.
        winners: number of the row to keep of each chain; chains with -1 are left out.

    Returns:
        (numbers of the kept chains, number of the kept row of each).
    """
    order = np.argsort(chains.first, kind="stable")
    order = order[winners[order] >= 0]
    return order, winners[order]


class MergeMap(ListFold):
    """Function `merge_map`: all entries, with the later value of equal keys; a retract removes keys."""

    name: ClassVar[str] = "merge_map"
    supports_retract: ClassVar[bool] = True

    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        flat = flatten_lists(lists, bounds)
        chains = Chains.of(flat.group, codes(flat.elements.field(0)))
        _, winners = _in_first_order(chains, chains.last)
        # a winner takes the place of its key's first occurrence; groups are kept together
        ordered = winners[np.argsort(flat.group[winners], kind="stable")]
        return rebuild_lists(flat.only(ordered), self.arrow_type, _all_null(lists, bounds))

    def _take_back(self, before: pa.Array, retracted: pa.Array, bounds: Ints) -> pa.Array:
        held, back = flatten_lists(before, np.arange(len(before) + 1)), flatten_lists(retracted, bounds)
        kept = ~_shares_fields(held, back, [0])
        return rebuild_lists(held.only(np.flatnonzero(kept)), self.arrow_type, ~_valid(before))


def _shares_fields(held: Flat, back: Flat, fields: list[int]) -> Mask:
    """Return a mask of the elements of ``held`` with the same ``fields`` as an element of ``back`` in the same group.

    Args:
        held: elements before the retract.
        back: retracted elements.
        fields: positions of the compared fields in the elements.
    """
    all_elements = pa.concat_arrays([held.elements, back.elements])
    parts = [codes(all_elements.field(place)) for place in fields]
    pair = dense([np.concatenate((held.group, back.group)), *parts])
    count = len(held.group)
    return np.isin(pair[:count], pair[count:])


def _in_first_list(lists: pa.Array, bounds: Ints, flat: Flat) -> Mask:
    """Return a mask of the elements that are in the first non-null list of their group."""
    valid = np.append(_valid(lists), True)
    soonest = np.minimum.accumulate(np.where(valid, np.arange(len(valid)), len(valid))[::-1])[::-1]
    return np.asarray(flat.source == soonest[bounds[:-1]][flat.group], np.bool_)


class MergeMapWithKeyTime(ListFold):
    """Function `merge_map_with_keytime`: for each key the entry with the newest time.

    An entry with a null value removes the key; an entry without a time is ignored. Neither applies to the entries of
    the first map of a fold that is not null.
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
        flat = flatten_lists(lists, bounds)
        rows = flat.elements.field(1)
        times = rows.field(self.time_field).cast(pa.string())
        head = _in_first_list(lists, bounds, flat)
        is_removal, has_time = ~_valid(rows) & ~head, _valid(rows) & _valid(times)
        chains = Chains.of(flat.group, codes(flat.elements.field(0)))
        removal = _last_places(chains, is_removal)
        number = chains.number
        after = np.where(removal >= 0, number[np.maximum(removal, 0)], -1) if len(number) else removal
        counts = has_time | head
        counts[chains.order] &= number[chains.order] > after[chains.chain_of]
        rank = dense(order_parts(times.fill_null(""))) if len(number) else np.zeros(0, np.int64)
        rank = np.where(counts, np.where(has_time, rank, -1), -2)
        # sorted by time, the first of equal times last: only a strictly later entry replaces another
        order = np.lexsort((-number[chains.order], rank[chains.order], chains.chain_of))
        best = chains.order[order][chains.ends - 1] if len(number) else chains.order
        winners = np.where(counts[best], best, -1) if len(number) else best
        _, chosen = _in_first_order(chains, winners)
        ordered = chosen[np.argsort(flat.group[chosen], kind="stable")]
        return rebuild_lists(flat.only(ordered), self.arrow_type, _all_null(lists, bounds))


def _base_lists(lists: pa.Array, bounds: Ints, with_null: bool) -> tuple[Ints, Mask]:
    """Return the base list of each group, to which later lists are added.

    Args:
        lists: lists of all groups.
        bounds: first list of each group, and the number of all lists at the end.
        with_null: True as in Paimon since 2.0: the base is the first list, even if this list is null. False as in
            earlier versions: the base is the first list that is not null, because this list replaced a null accumulator
            unchanged.

    Returns:
        The number of each group's base list, and a mask of the groups with a later list that is not null.
    """
    valid = _valid(lists)
    base = bounds[:-1]
    if not with_null:
        number = np.append(np.where(valid, np.arange(len(valid)), len(valid)), len(valid))
        base = np.minimum(np.minimum.accumulate(number[::-1])[::-1][base], bounds[1:] - 1)
    counts = offsets_from(valid)
    return base, np.asarray(counts[bounds[1:]] > counts[base + 1], np.bool_)


def _lengths(lists: pa.Array) -> Ints:
    """Return the number of rows of each list, null rows included; 0 for a null list."""
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)


def _choose(use_first: Mask, first: pa.Array, second: pa.Array) -> pa.Array:
    """Return the values of ``first`` in the rows of the mask ``use_first``, and of ``second`` in all other rows."""
    if not use_first.any():
        return second
    place = np.arange(len(use_first))
    return pa.concat_arrays([first, second]).take(pa.array(np.where(use_first, place, len(use_first) + place)))


class _Nested(ListFold):
    """Function over nested tables (lists of rows) whose rows have a key, the fields of option `nested-key`.

    Null rows are removed. If Paimon versions differ, the result is that of the table's version. Columns with an option
    that Paimon 1.4 does not know have the result of 2.0.
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
        for key, setting in (("nested-sequence-field", self.sequence), ("nested-key-null-strategy", strategy)):
            if setting and not self.keys:
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
        uses_new_options = strategy is not None or bool(self.sequence)
        self.since_2_0 = uses_new_options or options.version.at_least(PaimonVersion.V2_0)

    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        if self.limit != _UNLIMITED and not self.since_2_0:
            return self._join_one_by_one(lists, bounds)
        base, added = _base_lists(lists, bounds, self.since_2_0)
        flat = flatten_lists(lists, bounds)
        flat = self._check_keys(flat.only(np.flatnonzero(added[flat.group] & _valid(flat.elements))), groups)
        chains = Chains.of(flat.group, dense([codes(flat.elements.field(place)) for place in self.keys]))
        order = np.argsort(chains.first, kind="stable")
        first = chains.first[order]
        owner = flat.group[first]
        # beside the keys of the base list, the first keys of a group, as many as the limit allows
        number = np.arange(len(order)) - np.searchsorted(owner, owner, side="left")
        order = order[(number < self.limit) | (flat.source[first] == base[owner])]
        rebuilt_lists = rebuild_lists(
            self._winning_rows(flat, chains, order), self.arrow_type, np.zeros(len(base), np.bool_)
        )
        return _choose(~added, lists.take(pa.array(base)), rebuilt_lists)

    def _join_one_by_one(self, lists: pa.Array, bounds: Ints) -> pa.Array:
        """Merge lists with a `count-limit` as Paimon 1.4 does.

        From each input, as many rows are taken as are missing to the limit, even rows whose keys are already there. So
        the number of rows taken depends on the number of keys before the input, and each group takes a few inputs at a
        time until the limit is reached.
        """
        base, _ = _base_lists(lists, bounds, with_null=False)
        owner = np.repeat(np.arange(len(base)), np.diff(bounds))
        inputs = np.flatnonzero(_valid(lists) & (np.arange(len(lists)) > base[owner]))
        ends = np.cumsum(np.bincount(owner[inputs], minlength=len(base)))
        following, window = np.append(0, ends[:-1]), np.full(len(base), _FIRST_WINDOW)
        groups, held = np.arange(len(base)), lists.take(pa.array(base))
        finished, parts = [groups[:0]], [held.slice(0, 0)]
        while len(groups):
            is_open = (following[groups] < ends[groups]) & (_lengths(held) < self.limit)
            finished.append(groups[~is_open])
            parts.append(held.filter(pa.array(~is_open)))
            groups, held = groups[is_open], held.filter(pa.array(is_open))
            sizes = np.minimum(window[groups], ends[groups] - following[groups])
            held, taken_counts = self._fill_up(
                held, lists.take(pa.array(inputs[slice_places(following[groups], sizes)])), sizes
            )
            following[groups] += taken_counts
            window[groups] = np.where(taken_counts == sizes, 2 * sizes, taken_counts)
        order = np.argsort(np.concatenate(finished), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(order))

    def _fill_up(self, held: pa.Array, inputs: pa.Array, sizes: Ints) -> tuple[pa.Array, Ints]:
        """Fill up each list of ``held`` with the first rows of its inputs; the last row of each key is kept.

        One call processes only the first inputs of each list: as many as fit completely, or those up to the first input
        with a new key, whichever are more. For these, the number of free rows is known without merging one by one.

        Args:
            held: the lists.
            inputs: inputs of all lists, list after list.
            sizes: number of inputs of each list.

        Returns:
            The new lists, and the number of inputs used for each list.
        """
        count = len(held)
        bounds = offsets_from(sizes + 1)
        first, own = bounds[:-1], np.zeros(int(bounds[-1]), np.bool_)
        own[first] = True
        place = np.empty(len(own), np.int64)
        place[own], place[~own] = np.arange(count), count + np.arange(len(inputs))
        flat = flatten_lists(pa.concat_arrays([held, inputs]).take(pa.array(place)), bounds)
        flat = flat.only(np.flatnonzero(_valid(flat.elements)))
        free_rows = self.limit - _lengths(held)
        is_held = own[flat.source]
        number = np.arange(len(flat.source)) - np.searchsorted(flat.source, flat.source, side="left")
        # number of rows up to the end of each input
        rows = np.bincount(flat.source[~is_held], minlength=len(own))
        whole = np.cumsum(rows)
        whole -= np.repeat(whole[first] - rows[first], sizes + 1)
        owner = np.repeat(np.arange(count), sizes + 1)
        fit = np.bincount(owner[(whole <= free_rows[owner]) & ~own], minlength=count)
        flat_rows = np.flatnonzero(is_held | (number < free_rows[flat.group]))
        flat = flat.only(flat_rows)
        code = dense([codes(flat.elements.field(place)) for place in self.keys])
        first_of = Chains.of(flat.group, code).first
        is_known_key = own[flat.source[first_of]]
        new = first_of[~is_known_key]
        # the first input with a new key, counted from 1; a list whose null or repeated rows are about to be removed has
        # more room afterwards
        keys = np.bincount(flat.group[first_of[is_known_key]], minlength=count)
        fresh = np.where(keys == _lengths(held), sizes, 1)
        np.minimum.at(fresh, flat.group[new], flat.source[new] - first[flat.group[new]])
        taken_counts = np.maximum(fit, fresh)
        kept = np.flatnonzero(flat.source - first[flat.group] <= taken_counts[flat.group])
        flat, code = flat.only(kept), code[kept]
        chains = Chains.of(flat.group, code)
        order = np.argsort(chains.first, kind="stable")
        return rebuild_lists(
            self._winning_rows(flat, chains, order), self.arrow_type, np.zeros(count, np.bool_)
        ), taken_counts

    def _check_keys(self, flat: Flat, groups: Ints) -> Flat:
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

    def _winning_rows(self, flat: Flat, chains: Chains, order: Ints) -> Flat:
        """Return one row of each chain (rows with equal keys): the last, or that with the greatest sequence fields.

        Args:
            flat: rows of all lists.
            chains: rows with equal keys.
            order: numbers of the chains to return, in the order of the result.
        """
        winners = chains.last
        if self.sequence and len(chains):
            parts = [part for place in self.sequence for part in order_parts(flat.elements.field(place))]
            rank = dense(parts)
            best = np.lexsort((chains.number[chains.order], rank[chains.order], chains.chain_of))
            winners = chains.order[best][chains.ends - 1]
        return flat.only(winners[order])

    def _take_back(self, before: pa.Array, retracted: pa.Array, bounds: Ints) -> pa.Array:
        held, back = flatten_lists(before, np.arange(len(before) + 1)), flatten_lists(retracted, bounds)
        untouched = _all_null(retracted, bounds)
        # a null list loses no rows, so the keys are not checked
        back = back.only(np.flatnonzero(_valid(back.elements) & _valid(before)[back.group]))
        back = self._check_keys(back, np.arange(len(before)))
        held = held.only(np.flatnonzero(_valid(held.elements) & ~untouched[held.group]))
        held = self._check_keys(held, np.arange(len(before)))
        # the remaining rows form a table with one row a key
        chains = Chains.of(held.group, dense([codes(held.elements.field(place)) for place in self.keys]))
        _, winners = _in_first_order(chains, chains.last)
        remaining = held.only(winners)
        remaining = remaining.only(np.flatnonzero(~_shares_fields(remaining, back, list(self.keys))))
        return _choose(untouched, before, rebuild_lists(remaining, self.arrow_type, ~_valid(before)))


class NestedUpdate(_Nested):
    """Function `nested_update` with a key: inputs insert or replace rows by key, and a retract removes keys."""

    name: ClassVar[str] = "nested_update"
    supports_retract: ClassVar[bool] = True


class NestedPartialUpdate(_Nested):
    """Function `nested_partial_update`: rows are merged by key; each field keeps its last non-null value."""

    name: ClassVar[str] = "nested_partial_update"
    limited: ClassVar[bool] = False

    def _winning_rows(self, flat: Flat, chains: Chains, order: Ints) -> Flat:
        columns = []
        for place in range(flat.elements.type.num_fields):
            column = flat.elements.field(place)
            last = _last_places(chains, _valid(column))[order]
            columns.append(column.take(pa.array(np.maximum(last, 0), mask=last < 0)))
        first = chains.first[order]
        fields = [flat.elements.type.field(i) for i in range(flat.elements.type.num_fields)]
        return Flat(pa.StructArray.from_arrays(columns, fields=fields), flat.group[first], first, flat.groups)


class NestedAppend(Collect):
    """Function `nested_update` without a key: all rows up to the limit; a retract removes every equal row."""

    name: ClassVar[str] = "nested_update"
    _late_is_input = False
    _late_one_by_one = True

    def __init__(self, kind: DataType, options: FieldOptions) -> None:
        super().__init__(kind, options)
        self.distinct = False
        self.limit = _limit(options)
        self.since_2_0 = options.version.at_least(PaimonVersion.V2_0)

    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        base, added = _base_lists(lists, bounds, self.since_2_0)
        held, number_of = lists.take(pa.array(base)), offsets_from(_valid(lists))
        sizes = _lengths(held)
        added &= (sizes < self.limit) | ~_valid(held)
        flat = flatten_lists(lists, bounds)
        rows = flat.only(np.flatnonzero(added[flat.group] & _valid(flat.elements)))
        own = rows.source == base[rows.group]
        # null rows are removed, but the next input does not get their room
        null_rows = sizes - np.bincount(rows.group[own], minlength=len(base))
        if (null_rows[added] > 0).any():
            is_next = number_of[rows.source] == number_of[base + 1][rows.group]
            kept = own | ~is_next | (_position_in_group(rows) < (self.limit - null_rows)[rows.group])
            rows = rows.only(np.flatnonzero(kept))
            own = rows.source == base[rows.group]
        rows = rows.only(np.flatnonzero(own | (_position_in_group(rows) < self.limit)))
        return _choose(~added, held, rebuild_lists(rows, self.arrow_type, np.zeros(len(base), np.bool_)))

    def _take_back(self, before: pa.Array, retracted: pa.Array, bounds: Ints) -> pa.Array:
        held, back = flatten_lists(before, np.arange(len(before) + 1)), flatten_lists(retracted, bounds)
        rows, back = held.only(np.flatnonzero(_valid(held.elements))), back.only(np.flatnonzero(_valid(back.elements)))
        kept = ~_shares_fields(rows, back, list(range(rows.elements.type.num_fields)))
        remaining = rebuild_lists(rows.only(np.flatnonzero(kept)), self.arrow_type, ~_valid(before))
        return _choose(_all_null(retracted, bounds), before, remaining)


def _position_in_group(flat: Flat) -> Ints:
    """Return, for each element, the number of earlier elements of its group."""
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
        raise _type_error("merge_map", kind, options, "MAP")
    return MergeMap(kind, options)


def _merge_map_with_keytime(kind: DataType, options: FieldOptions) -> AggregateFunction:
    value = kind.value
    if kind.root is not TypeRoot.MAP or value is None or value.root is not TypeRoot.ROW or len(value.fields) < 2:
        raise _type_error("merge_map_with_keytime", kind, options, "MAP<K, ROW<...>> with two or more fields")
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
        raise _type_error(name, kind, options, "ARRAY<ROW<...>>")


def _type_error(name: str, kind: DataType, options: FieldOptions, accepted: str) -> InvalidOption:
    return InvalidOption(
        options.key("aggregate-function"), f"{name} on type {kind}", f"this function for {accepted}", options.table
    )


FUNCTIONS: Final[dict[str, Any]] = {
    "merge_map": _merge_map,
    "merge_map_with_keytime": _merge_map_with_keytime,
    "nested_update": _nested_update,
    "nested_partial_update": _nested_partial_update,
}
