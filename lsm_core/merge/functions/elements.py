"""Lists and maps of many groups as flat arrays: equality of elements, group of each element, and conversion back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import offsets_from, places_within, slice_places, valid_mask
from lsm_core.merge.functions.base import AGG, LATE, RETRACT, Accumulators, AggregateFunction, Folding
from lsm_core.merge.keys import (
    Ints,
    Mask,
    order_parts,
)


@dataclass(frozen=True, eq=False)
class Flat:
    """Elements of many lists (or entries of many maps), group by group, in order.

    Attributes:
        elements: the elements of all lists, one after another.
        group: the group of each element.
        source: number of the list from which each element comes; ascending.
        groups: number of groups.
    """

    elements: pa.Array
    group: Ints
    source: Ints
    groups: int

    def only(self, rows: Ints) -> Flat:
        """Return only the elements numbered ``rows``, whose order must keep the elements of a group together."""
        return Flat(self.elements.take(pa.array(rows)), self.group[rows], self.source[rows], self.groups)

    def offsets(self) -> pa.Array:
        """Return the position of each group's first element, and the end of the last group."""
        counts = np.bincount(self.group, minlength=self.groups)
        return pa.array(offsets_from(counts), pa.int32())


def flatten_lists(lists: pa.Array, bounds: Ints) -> Flat:
    """Return the elements of ``lists`` group by group; entries of maps as structs of key and value.

    Args:
        lists: lists or maps of all groups.
        bounds: group g has ``lists[bounds[g]:bounds[g + 1]]``.
    """
    lengths, elements = list_parts(lists)
    owner = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    return Flat(elements, np.repeat(owner, lengths), np.repeat(np.arange(len(lists)), lengths), len(bounds) - 1)


def list_parts(lists: pa.Array) -> tuple[Ints, pa.Array]:
    """Split lists or maps into lengths and elements.

    Returns:
        Length of each list (null: 0), and all elements; entries of maps as structs.
    """
    if pa.types.is_map(lists.type):
        # copied, because keys and items of a slice would include the elements outside of it
        whole = lists.take(pa.array(np.arange(len(lists))))
        entries = pa.StructArray.from_arrays(
            [whole.keys, whole.items], fields=[lists.type.key_field, lists.type.item_field]
        )
        return np.diff(np.asarray(whole.offsets)).astype(np.int64), entries
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)
    return lengths, lists.flatten()


def rebuild_lists(flat: Flat, kind: pa.DataType, is_null: Mask) -> pa.Array:
    """Build one list or map for each group.

    Args:
        flat: elements of all groups.
        kind: Arrow type of the lists or maps.
        is_null: mask of the groups whose result is null.
    """
    mask = pa.array(is_null) if is_null.any() else None
    if pa.types.is_map(kind):
        keys, items = flat.elements.field(0), flat.elements.field(1)
        return pa.MapArray.from_arrays(flat.offsets(), keys, items, type=kind, mask=mask)
    return pa.ListArray.from_arrays(flat.offsets(), flat.elements, type=kind, mask=mask)


def codes(values: pa.Array) -> Ints:
    """Return a number for each value; two numbers are equal if and only if the values are equal.

    Nulls equal each other, and maps are equal in any order of their entries.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        valid = _valid(values)
        parts = [np.where(valid, codes(values.field(place)), -1) for place in range(kind.num_fields)]
        return dense([valid.astype(np.int64), *parts])
    if not pa.types.is_map(kind) and not pa.types.is_list(kind):
        return dense(order_parts(values))
    lengths, elements = list_parts(values)
    inner = codes(elements)
    starts = offsets_from(lengths)[:-1]
    if pa.types.is_map(kind):
        inner = inner[np.lexsort((inner, np.repeat(np.arange(len(values)), lengths)))]
    code = dense([_valid(values).astype(np.int64), lengths])
    for position in range(int(lengths.max(initial=0))):
        longer = lengths > position
        codes_at_position = np.full(len(values), -1, np.int64)
        codes_at_position[longer] = inner[starts[longer] + position]
        code = dense([code, codes_at_position])
    return code


def dense(parts: Sequence[Ints]) -> Ints:
    """Return dense ranks of rows.

    Args:
        parts: columns to rank by, most significant first.

    Returns:
        Ranks from 0; equal rows have equal ranks.
    """
    if not len(parts[0]):
        return np.zeros(0, np.int64)
    order = np.lexsort(tuple(parts)[::-1])
    differs = np.zeros(len(order) - 1, np.bool_)
    for part in parts:
        ranked = part[order]
        differs |= ranked[1:] != ranked[:-1]
    ranks = np.zeros(len(order), np.int64)
    ranks[order[1:]] = np.cumsum(differs)
    return ranks


def _valid(values: pa.Array) -> Mask:
    mask = valid_mask(values)
    return np.ones(len(values), np.bool_) if mask is None else mask


@dataclass(frozen=True, eq=False)
class Chains:
    """Elements of each group divided into chains of equal elements; chain c is ``order[starts[c]:ends[c]]``.

    Elements of a chain keep their order.

    Attributes:
        order: numbers of the elements, sorted by group and chain.
        starts: position in ``order`` of each chain's first element.
        ends: end of each chain in ``order`` (exclusive).
    """

    order: Ints
    starts: Ints
    ends: Ints

    @staticmethod
    def of(group: Ints, code: Ints) -> Chains:
        """Return the chains: the lists of elements that have the same group and the same code.

        Args:
            group: group of each element.
            code: code of each element; equal elements have equal codes.
        """
        order = np.lexsort((code, group))  # stable: elements of a chain keep their order
        if not len(order):
            return Chains(order, order, order)
        ranked = group[order], code[order]
        new = np.concatenate(
            (np.ones(1, np.bool_), (ranked[0][1:] != ranked[0][:-1]) | (ranked[1][1:] != ranked[1][:-1]))
        )
        starts = np.flatnonzero(new)
        return Chains(order, starts, np.append(starts[1:], len(order)))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def first(self) -> Ints:
        """Number of the first element of each chain (equal elements of a group)."""
        return self.order[self.starts]

    @property
    def last(self) -> Ints:
        """Number of the last element of each chain (equal elements of a group)."""
        return self.order[self.ends - 1]

    @property
    def chain_of(self) -> Ints:
        """Number of the chain (equal elements of a group) to which each position of ``order`` belongs."""
        return np.repeat(np.arange(len(self)), self.ends - self.starts)

    @property
    def number(self) -> Ints:
        """For each element, the number of earlier elements of its group that are equal to it."""
        number = np.empty(len(self.order), np.int64)
        number[self.order] = places_within(self.ends - self.starts)
        return number


class ListFold(AggregateFunction):
    """Aggregate function over lists, maps or texts; consecutive inputs with the same operation are folded at once.

    Late input swaps accumulator and input. So the result has consecutive late inputs before the accumulator, the newest
    input first.
    """

    def _fold(self, folding: Folding, initial: Accumulators) -> Accumulators:
        seen = initial.seen | (folding.sizes > 0)
        result = initial.values
        for groups, starts, ends, op in _rounds(folding, self._late_is_input, self._late_one_by_one):
            before = result.take(pa.array(groups))
            after = self._fold_round(folding, before, starts, ends, op, groups)
            if len(groups) == len(result):
                result = after
            else:
                index = np.arange(len(result))
                index[groups] = len(result) + np.arange(len(groups))
                result = pa.concat_arrays([result, after]).take(pa.array(index))
        return Accumulators(result, seen)

    _late_is_input = False
    """Whether late input is treated as ordinary input."""
    _late_one_by_one = False
    """Whether late inputs must be folded one at a time, because elements dropped from the first input stay dropped."""

    def _fold_round(
        self, folding: Folding, before: pa.Array, starts: Ints, ends: Ints, op: int, groups: Ints
    ) -> pa.Array:
        sizes = ends - starts
        offsets = offsets_from(sizes)
        rows = slice_places(starts, sizes)
        if op == RETRACT:
            return self._take_back(before, folding.values.take(pa.array(rows)), offsets)
        bounds = offsets + np.arange(len(offsets))
        place = np.arange(int(bounds[-1]))
        own = np.zeros(len(place), np.bool_)
        index = np.empty(len(place), np.int64)
        if op == LATE:
            rows = np.repeat(ends - 1, sizes) - places_within(sizes)
            own[bounds[1:] - 1] = True
        else:
            own[bounds[:-1]] = True
        index[own], index[~own] = len(folding.values) + np.arange(len(groups)), rows
        lists = pa.concat_arrays([folding.values, before]).take(pa.array(index))
        return self._join(lists, bounds, groups)

    @abstractmethod
    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        """Return one list for each group g: ``lists[bounds[g]:bounds[g + 1]]`` folded from left to right.

        The lists of a group contain its accumulator. ``groups`` are the group numbers for errors.
        """

    def _take_back(self, before: pa.Array, retracted: pa.Array, bounds: Ints) -> pa.Array:
        """Return each accumulator of ``before`` without the elements of ``retracted[bounds[g]:bounds[g + 1]]``."""
        raise AssertionError(f"{self.name} takes nothing back")


def _rounds(folding: Folding, late_is_input: bool, late_one_by_one: bool) -> Iterator[tuple[Ints, Ints, Ints, int]]:
    """Yield runs of consecutive inputs with the same operation: the first run of all groups, then the second.

    Args:
        folding: inputs of all groups.
        late_is_input: whether late inputs are treated as ordinary inputs.
        late_one_by_one: whether each late input is a run by itself.

    Yields:
        (numbers of groups whose runs have the same operation, first row of each run, end of each run (exclusive),
        operation).
    """
    count = len(folding.values)
    if not count:
        return
    ops = np.zeros(count, np.int8) if folding.ops is None else folding.ops
    if late_is_input:
        ops = np.where(ops == LATE, AGG, ops)
    group = folding.groups
    new = np.concatenate((np.ones(1, np.bool_), (group[1:] != group[:-1]) | (ops[1:] != ops[:-1])))
    if late_one_by_one:
        new |= ops == LATE
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], count)
    owner = group[starts]
    firsts = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), owner[1:] != owner[:-1])))
    number = places_within(np.diff(np.append(firsts, len(starts))))
    for turn in range(int(number.max()) + 1):
        for op in (AGG, LATE, RETRACT):
            chosen = np.flatnonzero((number == turn) & (ops[starts] == op))
            if len(chosen):
                yield owner[chosen], starts[chosen], ends[chosen], op
