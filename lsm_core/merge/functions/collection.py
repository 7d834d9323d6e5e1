"""collect: concatenation of arrays, or of arrays as sets; and listagg: concatenation of texts.

Source: ``FieldCollectAgg``, ``FieldListaggAgg``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import offsets_from, valid_mask
from lsm_core.errors import InvalidOption
from lsm_core.merge.functions.base import AggregateFunction, FieldOptions
from lsm_core.merge.functions.elements import Chains, Flat, ListFold, _valid, codes, flatten_lists, rebuild_lists
from lsm_core.merge.keys import (
    Ints,
    Mask,
)
from lsm_core.options import PaimonVersion
from lsm_core.types import DataType, TypeRoot
from lsm_core.types.data_type import MAX_LENGTH

_WHITESPACE: Final = (
    " \t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009\u200a\u2028\u2029\u205f\u3000"
)
"""Characters of Java's `Character.isWhitespace`: breaking spaces of every script."""


def _all_null(lists: pa.Array, bounds: Ints) -> Mask:
    """Return a mask of the groups whose lists are all null; group g has ``lists[bounds[g]:bounds[g + 1]]``."""
    valid = valid_mask(lists)
    counts = np.arange(len(lists) + 1) if valid is None else offsets_from(valid)
    return np.asarray(counts[bounds[1:]] == counts[bounds[:-1]], np.bool_)


class Collect(ListFold):
    """Function `collect`: all elements in order of arrival; with `distinct`, equal elements are kept once.

    Late input is treated as ordinary input.
    """

    name: ClassVar[str] = "collect"
    supports_retract: ClassVar[bool] = True
    _late_is_input = True

    def __init__(self, kind: DataType, options: FieldOptions) -> None:
        super().__init__(kind, options)
        self.distinct = options.flag("distinct")

    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        flat = flatten_lists(lists, bounds)
        if self.distinct:
            flat = flat.only(np.sort(Chains.of(flat.group, codes(flat.elements)).first))
        return rebuild_lists(flat, self.arrow_type, _all_null(lists, bounds))

    def _take_back(self, before: pa.Array, retracted: pa.Array, bounds: Ints) -> pa.Array:
        """Return each list of ``before`` without the first remaining occurrence of each retracted element.

        The elements retracted from list g are those of the lists ``retracted[bounds[g]:bounds[g + 1]]``.
        """
        held = flatten_lists(before, np.arange(len(before) + 1))
        back = flatten_lists(retracted, bounds)
        code = codes(pa.concat_arrays([held.elements, back.elements]))
        count = len(held.group)
        number = Chains.of(held.group, code[:count]).number
        # number of times that the same element of the same group is retracted
        pair = np.concatenate((held.group, back.group)) * (int(code.max(initial=0)) + 1) + code
        distinct, place = np.unique(pair, return_inverse=True)
        times = np.bincount(place[count:], minlength=len(distinct))
        kept = np.flatnonzero(number >= times[place[:count]])
        return rebuild_lists(held.only(kept), self.arrow_type, ~_valid(before))


class ListAggregate(ListFold):
    """Function `listagg`: texts joined by a delimiter, without null and empty texts.

    Since Paimon 2.0, blank texts are left out too. If no input has a text to add, the accumulator is unchanged; before
    Paimon 2.0 a null accumulator is then replaced by an empty input. With `distinct`, inputs are split at the
    delimiter, and only parts that are new are added; the first text is unchanged.
    """

    name: ClassVar[str] = "listagg"

    def __init__(self, kind: DataType, options: FieldOptions) -> None:
        super().__init__(kind, options)
        self.delimiter = str(options.text("list-agg-delimiter", ","))
        self.distinct = options.flag("distinct")
        self.trims = options.version.at_least(PaimonVersion.V2_0)

    def _has_text(self, texts: pa.Array) -> Mask:
        """Return a mask of the texts that add characters to the result."""
        return np.asarray(pc.binary_length(pc.utf8_trim(texts, _WHITESPACE) if self.trims else texts)) > 0

    def _join(self, lists: pa.Array, bounds: Ints, groups: Ints) -> pa.Array:
        count = len(bounds) - 1
        owner = np.repeat(np.arange(count), np.diff(bounds))
        texts = pc.fill_null(lists, "")
        has_text = self._has_text(texts)
        text_rows = np.flatnonzero(has_text)
        parts = Flat(texts.take(pa.array(text_rows)), owner[text_rows], text_rows, count)
        if self.distinct:
            parts = self._new_parts(parts)
        lists_of = pa.ListArray.from_arrays(parts.offsets(), parts.elements)
        joined_texts = pc.binary_join(lists_of, self.delimiter)
        has_any = np.bincount(owner[text_rows], minlength=count) > 0
        if self.trims:
            return pc.if_else(pa.array(has_any), joined_texts, lists.take(pa.array(bounds[:-1])))
        valid = _valid(lists)
        number = np.append(np.where(valid, np.arange(len(valid)), len(valid)), len(valid))
        soonest = np.minimum.accumulate(number[::-1])[::-1][bounds[:-1]]
        is_all_null = soonest >= bounds[1:]
        blank = lists.take(pa.array(np.where(is_all_null, 0, soonest), mask=is_all_null))
        return pc.if_else(pa.array(has_any), joined_texts, blank)

    def _new_parts(self, texts: Flat) -> Flat:
        """Split all texts of a group except the first at the delimiter; return the first text and all new parts."""
        first = np.ones(len(texts.group), np.bool_)
        first[1:] = texts.group[1:] != texts.group[:-1]
        split = pc.split_pattern(texts.elements, self.delimiter)
        lengths = np.asarray(pc.list_value_length(split), np.int64)
        text = np.repeat(np.arange(len(texts.group)), lengths)
        parts = split.flatten()
        # all parts of a first text count as known, but the text itself is kept whole, represented by its first part
        filled = self._has_text(parts)
        chains = Chains.of(texts.group[text], codes(parts))
        new = np.zeros(len(parts), np.bool_)
        new[chains.first] = True
        new &= filled & ~first[text]
        heads = np.flatnonzero(first)
        index = np.concatenate((heads, len(texts.group) + np.flatnonzero(new)))
        owner = np.concatenate((texts.group[heads], texts.group[text[new]]))
        order = np.lexsort((index, owner))
        all_texts = pa.concat_arrays([texts.elements, parts])
        return Flat(all_texts.take(pa.array(index[order])), owner[order], index[order], texts.groups)


def _collect(kind: DataType, options: FieldOptions) -> AggregateFunction:
    if kind.root is not TypeRoot.ARRAY:
        raise InvalidOption(
            options.key("aggregate-function"), f"collect on type {kind}", "collect for ARRAY", options.table
        )
    return Collect(kind, options)


def _listagg(kind: DataType, options: FieldOptions) -> AggregateFunction:
    if kind.root is not TypeRoot.VARCHAR or kind.length != MAX_LENGTH:
        value = f"listagg on type {kind}"
        raise InvalidOption(options.key("aggregate-function"), value, "listagg for STRING", options.table)
    return ListAggregate(kind, options)


FUNCTIONS: Final[dict[str, Any]] = {"collect": _collect, "listagg": _listagg}
