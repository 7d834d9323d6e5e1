"""What changed, found while compacting: the versions of each key in, the merged rows and their changelog out.

`lookup` compares with the row of the higher levels, `full-compaction` with the row of the top level, first-row tables only
announce keys that are new. Java: `LookupChangelogMergeFunctionWrapper`, `FullChangelogMergeFunctionWrapper`,
`FirstRowMergeFunctionWrapper`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import numpy_array, offsets_from, values_of
from lsm_core.errors import InvalidOption
from lsm_core.format.kv_layout import KEY_PREFIX, LEVEL, VALUE_KIND
from lsm_core.format.schema import TableSchema
from lsm_core.merge.comparable import (
    Ints,
    Mask,
)
from lsm_core.merge.engines.first_row import FirstRow
from lsm_core.merge.engines.fold import NO_ROW, FoldInput
from lsm_core.merge.function import FoldFunction, MergeFunction, merge_function
from lsm_core.merge.functions.elements import codes
from lsm_core.merge.keys import concat_keys
from lsm_core.merge.order import Groups, merge_order
from lsm_core.merge.rows import Piece, Rows, retracts
from lsm_core.options import TableOptions

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)


class ChangelogFunction(Protocol):
    """Merges the versions of keys and tells what became of each key."""

    def merge(
        self, batch: pa.RecordBatch, looked_up: pa.RecordBatch | None = None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """``batch``: all versions of some keys, any order, `_LEVEL` (int) beside the key-value columns.

        ``looked_up``: rows of levels above those of ``batch`` for these keys, at most one a key, in the same schema. Returns merged rows
        and changelog rows, both by key, in the schema of ``batch``.
        """
        ...


def changelog_function(
    schema: TableSchema, options: Mapping[str, str], max_level: int, table: str = ""
) -> ChangelogFunction:
    """The wrapper that option `changelog-producer` asks for. Raises InvalidOption when it asks for none."""
    typed = TableOptions(options, table, stored=True)
    function = merge_function(schema, options, table)
    producer = typed.changelog_producer
    if producer not in {"lookup", "full-compaction"}:
        raise InvalidOption("changelog-producer", producer, "lookup or full-compaction", table)
    if isinstance(function, FirstRow):
        return FirstRowChangelog(function)
    ignored = [name.strip() for name in str(options.get(_IGNORED, "")).split(",") if name.strip()]
    deduplicates = options.get("changelog-producer.row-deduplicate", "false").strip().lower() == "true"
    compared = tuple(name for name in schema.field_names if name not in ignored) if deduplicates else None
    if producer == "lookup":
        return LookupChangelog(function, compared)
    return FullChangelog(function, compared, max_level)


_IGNORED = "changelog-producer.row-deduplicate-ignore-fields"


@dataclass(frozen=True, eq=False)
class Versions:
    """Versions by key: a batch, its groups in merge order, and the level of every row."""

    batch: pa.RecordBatch
    rows: Rows
    groups: Groups
    levels: Ints
    kinds: npt.NDArray[np.int64]

    @staticmethod
    def of(batch: pa.RecordBatch, function: MergeFunction) -> Versions:
        """Rows equal in everything else go by level, the highest first; unknown levels (-1) as they come."""
        levels = numpy_array(batch.column(LEVEL)).astype(np.int64)
        older_first = np.argsort(-np.maximum(levels, 0), kind="stable")
        batch = batch.take(pa.array(older_first))
        rows = Rows.of([Piece(batch, function.key_spec.keys(batch), 0, 0)])
        groups = merge_order(rows, function.key_spec, sorted_runs=False)
        kinds = np.asarray(values_of(batch.column(VALUE_KIND), np.int8), np.int64)
        return Versions(batch, rows, groups, levels[older_first], kinds)

    @property
    def group_of(self) -> Ints:
        """The group of each row."""
        found = np.empty(len(self.groups.order), np.int64)
        found[self.groups.order] = np.repeat(np.arange(len(self.groups)), self.groups.ends - self.groups.starts)
        return found

    def any(self, wanted: Mask) -> Mask:
        """Which groups have a row that is ``wanted``."""
        hit = np.zeros(len(self.groups), np.bool_)
        hit[self.group_of[wanted]] = True
        return hit

    def lowest_high(self) -> Ints:
        """For each group its row of the lowest level above 0 (the newest of several), NO_ROW for none."""
        high = np.flatnonzero(self.levels > 0)
        place = np.empty(len(self.levels), np.int64)
        place[self.groups.order] = np.arange(len(self.levels))
        group = self.group_of[high]
        order = np.lexsort((-place[high], self.levels[high], group))
        first = np.ones(len(order), np.bool_)
        first[1:] = group[order][1:] != group[order][:-1]
        found = np.full(len(self.groups), NO_ROW, np.int64)
        found[group[order][first]] = high[order][first]
        return found


def merged(function: MergeFunction, versions: Versions, *, bypass: bool) -> tuple[pa.RecordBatch, Ints]:
    """The result of every group that has one, and for each group its place in them (NO_ROW: none)."""
    if isinstance(function, FoldFunction):
        output = function.fold(FoldInput(versions.rows, versions.groups, versions.kinds, bypass=bypass))
        batch = pa.concat_batches(output.batches) if output.batches else versions.batch.slice(0, 0)
        return batch, np.arange(batch.num_rows)
    picked = function.pick(versions.groups, versions.kinds, folded=False)
    if not bypass and getattr(function, "ignore_delete", False):
        picked = np.where(retracts(versions.kinds)[picked], NO_ROW, picked)
    found = picked >= 0
    return versions.batch.take(pa.array(picked[found])), np.where(found, np.cumsum(found) - 1, NO_ROW)


@dataclass(frozen=True)
class LookupChangelog:
    """Compares with the row of the lowest level above 0: one of the versions, else the one looked up.

    Of the versions above level 0 only that one is merged: it stands for all older ones. Keys without a level-0 version have
    no changelog. ``compared``: columns that must differ for an update to be told (None: all updates are).
    """

    function: MergeFunction
    compared: tuple[str, ...] | None = None

    def merge(
        self, batch: pa.RecordBatch, looked_up: pa.RecordBatch | None = None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """See :class:`ChangelogFunction`."""
        versions = Versions.of(batch, self.function)
        new = versions.any(versions.levels == 0)
        high = versions.lowest_high()
        group_of = versions.group_of
        kept = (versions.levels <= 0) | (np.arange(len(versions.levels)) == high[group_of])
        parts = [versions.batch.filter(pa.array(kept))]
        if looked_up is not None and looked_up.num_rows:
            # of these rows only those whose key has a new version, and none of its own above level 0
            mine, theirs = _key_codes(self.function, versions, looked_up)
            asked = np.flatnonzero(np.isin(theirs, mine[new & (high == NO_ROW)]))
            parts.append(looked_up.select(batch.schema.names).take(pa.array(asked)))
        chosen = Versions.of(pa.concat_batches(parts), self.function)
        rows, place = merged(self.function, chosen, bypass=False)
        before = np.where(new, chosen.lowest_high(), NO_ROW)
        changes = _changes(chosen, before, rows, np.where(new, place, NO_ROW), self.compared)
        return rows, changes


def _key_codes(function: MergeFunction, versions: Versions, others: pa.RecordBatch) -> tuple[Ints, Ints]:
    """Numbers of the keys of the groups, and of the rows of another batch, equal where the keys are."""
    spec = function.key_spec
    keys = concat_keys([spec.keys(versions.batch.take(pa.array(versions.groups.newest))), spec.keys(others)])
    order, same = keys.order(sorted_runs=False)
    code = np.empty(len(order), np.int64)
    code[order] = offsets_from(~same)
    return code[: len(versions.groups)], code[len(versions.groups) :]


@dataclass(frozen=True)
class FullChangelog:
    """Compares the outcome of a full compaction with the row of the top level. Deleted keys are not among the rows."""

    function: MergeFunction
    compared: tuple[str, ...] | None
    max_level: int

    def merge(
        self, batch: pa.RecordBatch, looked_up: pa.RecordBatch | None = None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """See :class:`ChangelogFunction`; nothing is ever looked up."""
        versions = Versions.of(batch, self.function)
        rows, place = merged(self.function, versions, bypass=True)
        top = np.full(len(versions.groups), NO_ROW, np.int64)
        at_top = np.flatnonzero(versions.levels == self.max_level)
        top[versions.group_of[at_top]] = at_top
        alone = (versions.groups.ends - versions.groups.starts == 1) & (top != NO_ROW)
        changes = _changes(
            versions, np.where(alone, NO_ROW, top), rows, np.where(alone, NO_ROW, place), self.compared, any_before=True
        )
        adds = ~retracts(np.asarray(values_of(rows.column(VALUE_KIND), np.int8), np.int64))
        return rows.filter(pa.array(adds)), changes


@dataclass(frozen=True)
class FirstRowChangelog:
    """A key is told once: when no version of a higher level is there, neither among the rows nor by looking it up."""

    function: FirstRow

    def merge(
        self, batch: pa.RecordBatch, looked_up: pa.RecordBatch | None = None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """See :class:`ChangelogFunction`; rows whose key was found above vanish, they are there already."""
        versions = Versions.of(batch, self.function)
        rows, place = merged(self.function, versions, bypass=True)
        known = versions.any(versions.levels > 0)
        found = np.zeros(len(known), np.bool_)
        if looked_up is not None and looked_up.num_rows:
            mine, theirs = _key_codes(self.function, versions, looked_up)
            found = np.isin(mine, theirs)
        there = place != NO_ROW
        gone = ~known & found
        return rows.take(pa.array(place[there & ~gone])), rows.take(pa.array(place[there & ~known & ~found]))


def _changes(
    versions: Versions,
    before: Ints,
    rows: pa.RecordBatch,
    after: Ints,
    compared: tuple[str, ...] | None,
    *,
    any_before: bool = False,
) -> pa.RecordBatch:
    """The changelog rows of each group: ``before`` is a row of ``versions``, ``after`` one of ``rows``, NO_ROW for none.

    ``any_before``: a retract counts as a row that was there (the top level holds none).
    """
    was = before != NO_ROW
    if not any_before:
        was &= ~retracts(versions.kinds)[before]
    kinds = np.asarray(values_of(rows.column(VALUE_KIND), np.int8), np.int64)
    told = after != NO_ROW
    adds = told & ~retracts(kinds)[after] if rows.num_rows else told
    insert, delete, update = adds & ~was, told & ~adds & was, adds & was
    if compared is not None and update.any():
        both = np.flatnonzero(update)
        equal = np.ones(len(both), np.bool_)
        for name in compared:
            if name in versions.batch.schema.names and not name.startswith(KEY_PREFIX):
                sides = (
                    versions.batch.column(name).take(pa.array(before[both])),
                    rows.column(name).take(pa.array(after[both])),
                )
                code = codes(pa.concat_arrays(sides))  # null equals null
                equal &= code[: len(both)] == code[len(both) :]
        update[both[equal]] = False
    old, new = np.flatnonzero(delete | update), np.flatnonzero(insert | update)
    left = _with_kinds(versions.batch.take(pa.array(before[old])), np.where(delete[old], DELETE, UPDATE_BEFORE))
    right = _with_kinds(rows.take(pa.array(after[new])), np.where(insert[new], INSERT, UPDATE_AFTER))
    together = pa.concat_batches([left, right])
    return together.take(pa.array(np.argsort(np.concatenate((old, new)), kind="stable")))


def _with_kinds(batch: pa.RecordBatch, kinds: Ints) -> pa.RecordBatch:
    place = batch.schema.get_field_index(VALUE_KIND)
    return batch.set_column(place, batch.schema.field(place), pa.array(kinds.astype(np.int8), pa.int8()))
