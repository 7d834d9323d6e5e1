"""Changelog of compactions: merges all versions of each key, and writes the change of each key.

The changelog producer `lookup` compares the merged row with the key's row above level 0. This is an input row of the
compaction, or a row that is looked up above the output level. `full-compaction` compares the merged row with the key's
row on the top level. First-row tables only write new keys.

Source: ``LookupChangelogMergeFunctionWrapper``, ``FullChangelogMergeFunctionWrapper``,
``FirstRowMergeFunctionWrapper``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import batch_of, plain, take_rows
from lsm_core.errors import InvalidOption
from lsm_core.format.schema import KEY_PREFIX, VALUE_KIND, TableSchema
from lsm_core.merge.engines.first_row import FirstRow
from lsm_core.merge.engines.fold import NO_ROW, FoldInput
from lsm_core.merge.function import FoldFunction, MergeFunction
from lsm_core.merge.functions.elements import codes
from lsm_core.merge.keys import IntKeys, Ints, Mask, NormalisedKeys
from lsm_core.merge.rows import Groups, Piece, Rows, emit, merge_order, retracts
from lsm_core.merge.window import DELETE_AT_BOTTOM, IGNORED_DELETE, KNOWN_ABOVE, OLDER_VERSION, MergeCounters
from lsm_core.options import TableOptions

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
_IGNORED: Final = "changelog-producer.row-deduplicate-ignore-fields"


class Against(StrEnum):
    """Old row of a key with which the changelog compares the key's merged row."""

    HIGH_LEVELS = "high levels"
    """The row above level 0, either an input row or a row looked up; keys without a level-0 version have no change."""
    TOP_LEVEL = "top level"
    """The row of the top level, to which a full compaction writes."""


@dataclass(frozen=True)
class ChangelogRules:
    """Rules for the changelogs of a table's compactions.

    Attributes:
        against: old row with which merged rows are compared.
        produces: whether a changelog is written; False if compactions only look up keys (`force-lookup`, first-row).
        compared: an update is written only if one of these columns differs; None to write all updates.
    """

    against: Against
    produces: bool
    compared: tuple[str, ...] | None = None

    @staticmethod
    def of(schema: TableSchema, options: TableOptions) -> ChangelogRules | None:
        """Return the rules of a table, or None if its compactions neither look keys up nor write a changelog.

        Raises:
            InvalidOption: a column to ignore does not exist.
        """
        producer = options.changelog_producer
        compared = None
        if options.get("changelog-producer.row-deduplicate"):
            ignored = [name.strip() for name in str(options.get(_IGNORED) or "").split(",") if name.strip()]
            for name in ignored:
                if not schema.has_field(name):
                    raise InvalidOption(_IGNORED, name, f"columns: {', '.join(schema.field_names)}", options.table)
            compared = tuple(name for name in schema.field_names if name not in ignored)
        if producer == "full-compaction":
            return ChangelogRules(Against.TOP_LEVEL, produces=True, compared=compared)
        if options.needs_lookup:
            return ChangelogRules(Against.HIGH_LEVELS, produces=producer == "lookup", compared=compared)
        return None


LookUp = Callable[[NormalisedKeys, pa.RecordBatch], tuple[Ints, pa.RecordBatch]]
"""Function that looks up ascending distinct keys, with their key columns, in the levels above the output.

The function returns the positions of the keys that exist in these levels, and the row of each, in the same order.
"""
WriteChanges = Callable[[pa.RecordBatch], None]


@dataclass
class ChangelogMerger:
    """Merge of a compaction that also writes the changelog: the change of each key from its old row to its merged row.

    Each call of :meth:`merge` receives all versions of its keys.
    Changes have the same columns as the input rows, with +I, -U, +U or -D as `_VALUE_KIND`. Under
    `Against.HIGH_LEVELS`, only the newest of a key's rows above level 0 (the row on the lowest such level) is merged.
    This row replaces all older rows of the key.

    Attributes:
        rules: rules of the table's changelog.
        function: merge function of the table.
        max_level: highest level of the bucket's tree.
        look_up: function that looks up keys in the levels above the output level; None if these levels have no file in
            the key range.
        write_changes: function that writes changes; it is called in key order.
        drop_delete: whether keys whose merged row is a delete are left out of the output.
        counters: counters of the merge.
    """

    rules: ChangelogRules
    function: MergeFunction
    max_level: int
    look_up: LookUp | None
    write_changes: WriteChanges
    drop_delete: bool = False
    counters: MergeCounters = field(default_factory=MergeCounters)

    def merge(self, pieces: Sequence[Piece]) -> list[pa.RecordBatch]:
        """Merge all versions of the keys of ``pieces``, and write the change of each key.

        Returns:
            The merged rows in key order, without the rows that ``drop_delete`` or the merge engine leaves out.
        """
        count = sum(len(piece) for piece in pieces)
        if not count:
            return []
        self.counters.rows_in += count
        versions = _Versions.of(pieces, self.function)
        full = self.rules.against is Against.TOP_LEVEL
        if full:
            merged = self._merge_versions(versions, bypass=True)
            before = versions.row_of(versions.levels == self.max_level)
            concerned = ~((before != NO_ROW) & (versions.sizes == 1))
        else:
            if not isinstance(self.function, FirstRow):
                versions = versions.with_lowest_high_only()
            concerned = versions.any(versions.levels <= 0)
            before = versions.row_of(versions.levels > 0)
            groups, hits, rows = self._look_up_groups(versions, concerned & (before == NO_ROW))
            if isinstance(self.function, FirstRow):
                known = np.zeros(len(before), np.bool_)
                known[groups[hits]] = True
                return self._first_rows(versions, concerned & (before == NO_ROW), known, count)
            if len(hits):
                keys = versions.rows.keys.take(versions.groups.newest[groups[hits]])
                above = Piece(rows, keys, self.max_level + 1, -1)
                versions = _Versions.of([above, *versions.rows.pieces], self.function)
                before = np.where(before == NO_ROW, NO_ROW, before + len(hits))
                before[groups[hits]] = np.arange(len(hits))
            merged = self._merge_versions(versions, bypass=False)
        if self.rules.produces:
            self._write_compared(versions, np.where(concerned, before, NO_ROW), merged, concerned)
        kept = merged.place != NO_ROW
        self.counters.drop(OLDER_VERSION, count - len(kept))
        self.counters.drop(IGNORED_DELETE, int(len(kept) - kept.sum()))
        if self.drop_delete:
            deleted = kept.copy()
            deleted[kept] = retracts(merged.kinds[merged.place[kept]])
            self.counters.drop(DELETE_AT_BOTTOM, int(deleted.sum()))
            kept &= ~deleted
        self.counters.rows_out += int(kept.sum())
        return merged.batches(merged.place[kept])

    def _look_up_groups(self, versions: _Versions, groups_mask: Mask) -> tuple[Ints, Ints, pa.RecordBatch]:
        """Look up the keys of the groups in ``groups_mask`` in the levels above the output level.

        Returns:
            The numbers of the groups in the mask; the positions, in this array, of the groups whose keys exist above
            the output level; and the rows of these keys there.
        """
        groups = np.flatnonzero(groups_mask)
        if self.look_up is None or not len(groups):
            return groups, np.zeros(0, np.int64), versions.rows.pieces[0].batch.slice(0, 0)
        newest = versions.groups.newest[groups]
        spec = self.function.key_spec
        columns = [versions.rows.column(name, newest) for name in spec.key_fields(versions.schema)]
        keys = pa.RecordBatch.from_arrays(columns, list(spec.key_columns))
        return groups, *self.look_up(versions.rows.keys.take(newest), keys)

    def _merge_versions(self, versions: _Versions, *, bypass: bool) -> _MergeResult:
        function = self.function
        if isinstance(function, FoldFunction):
            output = function.fold(FoldInput(versions.rows, versions.groups, versions.kinds, bypass=bypass))
            self.counters.keys_folded += output.folded
            self.counters.keys_one_by_one += output.alone
            return _MergeResult(
                Rows.of([_merged_piece(batch) for batch in output.batches]), np.arange(len(versions.groups))
            )
        picked = function.pick(versions.groups, versions.kinds, folded=False)
        if not bypass and getattr(function, "ignore_delete", False):
            picked = np.where(retracts(versions.kinds)[picked], NO_ROW, picked)
        return _MergeResult(versions.rows, picked)

    def _first_rows(self, versions: _Versions, new: Mask, known: Mask, count: int) -> list[pa.RecordBatch]:
        """Return the first row of each key that no level above the output has, and write new keys as +I rows.

        ``new``: mask of the keys that have an input row on level 0 and none above level 0. ``known``: mask of the keys
        that were found above the output. ``count``: number of input rows.
        """
        merged = self._merge_versions(versions, bypass=True)
        has_row = merged.place != NO_ROW
        self.counters.drop(OLDER_VERSION, count - len(has_row))
        self.counters.drop(IGNORED_DELETE, int((~has_row).sum()))
        self.counters.drop(KNOWN_ABOVE, int((has_row & known).sum()))
        # Java writes a lone retract, and cannot compact it. It deletes no row, since no older row exists. If kept, it
        # would become the key's first row; as a change, it would delete a row that never existed.
        lone_retracts = has_row & ~known
        lone_retracts[lone_retracts] = retracts(merged.kinds[merged.place[lone_retracts]])
        self.counters.drop(DELETE_AT_BOTTOM, int(lone_retracts.sum()))
        has_row &= ~lone_retracts
        if self.rules.produces:
            for batch in merged.batches(merged.place[has_row & new & ~known]):
                self.write_changes(batch)
        written = merged.place[has_row & ~known]
        self.counters.rows_out += len(written)
        return merged.batches(written)

    def _write_compared(self, versions: _Versions, before: Ints, merged: _MergeResult, concerned: Mask) -> None:
        """Write the change of each key from its old row to its merge result.

        Args:
            versions: rows that contain the old rows.
            before: for each key, the number of its old row in ``versions``, or NO_ROW; a retract counts as no row.
            merged: merge result of each key.
            concerned: mask of the keys that may have changed; no change is written for a key outside the mask.
        """
        had_row = before != NO_ROW
        had_row &= ~retracts(versions.kinds)[before]
        has_result = concerned & (merged.place != NO_ROW)
        is_add = has_result & ~retracts(merged.kinds)[merged.place] if len(merged.kinds) else has_result
        insert, delete, update = is_add & ~had_row, has_result & ~is_add & had_row, is_add & had_row
        if self.rules.compared is not None and update.any():
            updated = np.flatnonzero(update)
            equal = np.ones(len(updated), np.bool_)
            for name in self.rules.compared:
                if name in versions.schema.names and not name.startswith(KEY_PREFIX) and equal.any():
                    sides = versions.rows.column(name, before[updated]), merged.rows.column(name, merged.place[updated])
                    code = codes(pa.concat_arrays([plain(side) for side in sides]))  # null equals null
                    equal &= code[: len(updated)] == code[len(updated) :]
            update[updated[equal]] = False
        old, new = np.flatnonzero(delete | update), np.flatnonzero(insert | update)
        order = np.argsort(np.concatenate((old, new)), kind="stable")
        kinds = np.concatenate(
            (np.where(delete[old], DELETE, UPDATE_BEFORE), np.where(insert[new], INSERT, UPDATE_AFTER))
        )
        kinds = kinds[order].astype(np.int8)
        if merged.rows is versions.rows:
            batches = emit(versions.rows, np.concatenate((before[old], merged.place[new]))[order])
        else:
            rows = Rows.of([*versions.rows.pieces, *merged.rows.pieces])
            batches = emit(rows, np.concatenate((before[old], merged.place[new] + len(versions.rows)))[order])
        done = 0
        for batch in batches:
            part = pa.array(kinds[done : done + batch.num_rows])
            columns = [part if n == VALUE_KIND else c for n, c in zip(batch.schema.names, batch.columns, strict=True)]
            self.write_changes(batch_of(columns, batch.schema))
            done += batch.num_rows


@dataclass(frozen=True, eq=False)
class _MergeResult:
    """Merge result of each key.

    Attributes:
        rows: rows among which the results are.
        place: for each key, the number of its result in ``rows``, or NO_ROW for no result.
    """

    rows: Rows
    place: Ints

    @cached_property
    def kinds(self) -> Ints:
        """Row kind of each row of ``rows``."""
        return self.rows.integers(VALUE_KIND, np.int8)

    def batches(self, chosen: Ints) -> list[pa.RecordBatch]:
        """Return the rows numbered ``chosen``, in that order."""
        return emit(self.rows, chosen)


@dataclass(frozen=True, eq=False)
class _Versions:
    """Rows grouped by key, in merge order within a key, with the level of each row.

    Attributes:
        rows: all versions of the keys.
        groups: the rows of each key, in merge order.
        levels: level of each row.
        function: merge function of the table.
    """

    rows: Rows
    groups: Groups
    levels: Ints
    function: MergeFunction

    @staticmethod
    def of(pieces: Sequence[Piece], function: MergeFunction) -> _Versions:
        rows = Rows.of(pieces)
        levels = np.repeat(np.array([piece.level for piece in pieces], np.int64), np.diff(rows.offsets))
        return _Versions(rows, merge_order(rows, function.key_spec), levels, function)

    @property
    def schema(self) -> pa.Schema:
        return self.rows.pieces[0].batch.schema

    @cached_property
    def kinds(self) -> Ints:
        return self.rows.integers(VALUE_KIND, np.int8)

    @cached_property
    def sizes(self) -> Ints:
        """Number of rows of each group (key)."""
        return self.groups.ends - self.groups.starts

    @cached_property
    def group_of(self) -> Ints:
        """Number of the group (key) of each row."""
        groups = np.empty(len(self.groups.order), np.int64)
        groups[self.groups.order] = np.repeat(np.arange(len(self.groups)), self.sizes)
        return groups

    def any(self, rows: Mask) -> Mask:
        """Return a mask of the groups (keys) with at least one row in the mask ``rows``."""
        result = np.zeros(len(self.groups), np.bool_)
        result[self.group_of[rows]] = True
        return result

    def row_of(self, mask: Mask) -> Ints:
        """Return, for each group (key), the number of its row that is in ``mask``; NO_ROW for a group without one."""
        rows = np.full(len(self.groups), NO_ROW, np.int64)
        chosen = np.flatnonzero(mask)
        rows[self.group_of[chosen]] = chosen
        return rows

    def with_lowest_high_only(self) -> _Versions:
        """Return the versions, but of each key's rows above level 0 only the newest: that on the lowest such level."""
        high = np.flatnonzero(self.levels > 0)
        group = self.group_of[high]
        if len(high) == np.count_nonzero(np.bincount(group, minlength=1)):
            return self
        order = np.lexsort((self.levels[high], group))
        older_positions = np.flatnonzero(group[order][1:] == group[order][:-1]) + 1
        kept = np.ones(len(self.levels), np.bool_)
        kept[high[order[older_positions]]] = False
        pieces = []
        for piece, mine in zip(self.rows.pieces, np.split(kept, self.rows.offsets[1:-1]), strict=True):
            rows = np.flatnonzero(mine)
            batch = batch_of([take_rows(column, pa.array(rows)) for column in piece.batch.columns], piece.batch.schema)
            if len(rows):
                pieces.append(Piece(batch, piece.keys.take(rows), piece.level, piece.age))
        return _Versions.of(pieces, self.function)


def _merged_piece(batch: pa.RecordBatch) -> Piece:
    """Return merged rows as a `Piece` from which rows are only taken by number; its normalised keys are not valid."""
    return Piece(batch, IntKeys(np.broadcast_to(np.int64(0), batch.num_rows)), 0, 0)
