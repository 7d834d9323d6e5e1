"""What changed, found while compacting: the versions of whole keys in, the merged rows and their changelog out.

`lookup` compares with the row of the levels above 0: the one that takes part in the compaction, else the one looked up above its output.
`full-compaction` compares with the row of the top level; first-row tables only announce keys that are new. Java:
`LookupChangelogMergeFunctionWrapper`, `FullChangelogMergeFunctionWrapper`, `FirstRowMergeFunctionWrapper`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.errors import InvalidOption
from lsm_core.format.kv_layout import KEY_PREFIX, VALUE_KIND
from lsm_core.format.schema import TableSchema
from lsm_core.merge.comparable import Ints, Mask
from lsm_core.merge.counters import DELETE_AT_BOTTOM, IGNORED_DELETE, KNOWN_ABOVE, OLDER_VERSION, MergeCounters
from lsm_core.merge.engines.first_row import FirstRow
from lsm_core.merge.engines.fold import NO_ROW, FoldInput
from lsm_core.merge.function import FoldFunction, MergeFunction
from lsm_core.merge.functions.elements import codes
from lsm_core.merge.keys import IntKeys, NormalisedKeys
from lsm_core.merge.order import Groups, merge_order
from lsm_core.merge.rows import Piece, Rows, emit, retracts
from lsm_core.options import TableOptions
from lsm_core.types.dictionaries import batch_of, plain, taken

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
_IGNORED: Final = "changelog-producer.row-deduplicate-ignore-fields"


class Against(StrEnum):
    """Which row a compaction compares its merged row with to find the change."""

    HIGH_LEVELS = "high levels"
    """The row above level 0, among the versions or looked up: keys without a new version have no change."""
    TOP_LEVEL = "top level"
    """The row of the top level, to which a full compaction writes."""


@dataclass(frozen=True)
class ChangelogRules:
    """How a table's compactions produce changelogs: ``produces`` False where they look keys up without one (`force-lookup`, first-row).

    ``compared``: columns that must differ for an update to be in the changelog (None: all updates are).
    """

    against: Against
    produces: bool
    compared: tuple[str, ...] | None = None

    @staticmethod
    def of(schema: TableSchema, options: TableOptions) -> ChangelogRules | None:
        """What the table's options ask for; None where compactions neither look keys up nor produce a changelog.

        Raises InvalidOption for a column to ignore that the table does not have.
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
"""Ascending keys, each once, and their columns -> which of them lie in the levels above, and their rows there, in that order."""
WriteChanges = Callable[[pa.RecordBatch], None]


@dataclass
class ChangelogMerger:
    """Merges windows of whole keys and writes what changed of each key.

    The rows of ``pieces`` are laid out as the merge's inputs; changes have the same columns, `_VALUE_KIND` being +I, -U, +U or
    -D. Of the levels above 0 each key has one row at most (the lowest level's: it stands for all older ones), unless the
    comparison is with the top level, ``max_level``.
    """

    rules: ChangelogRules
    function: MergeFunction
    max_level: int
    look_up: LookUp | None
    write_changes: WriteChanges
    drop_delete: bool = False
    counters: MergeCounters = field(default_factory=MergeCounters)

    def merge(self, pieces: Sequence[Piece]) -> list[pa.RecordBatch]:
        """The merged rows of all keys of ``pieces``, in key order; their changes are written, in key order too."""
        count = sum(len(piece) for piece in pieces)
        if not count:
            return []
        self.counters.rows_in += count
        versions = _Versions.of(pieces, self.function)
        full = self.rules.against is Against.TOP_LEVEL
        if full:
            merged = self._merged(versions, bypass=True)
            before = versions.row_of(versions.levels == self.max_level)
            concerned = ~((before != NO_ROW) & (versions.sizes == 1))
        else:
            if not isinstance(self.function, FirstRow):
                versions = versions.with_lowest_high_only()
            concerned = versions.any(versions.levels <= 0)
            before = versions.row_of(versions.levels > 0)
            asked, found, rows = self._looked_up(versions, concerned & (before == NO_ROW))
            if isinstance(self.function, FirstRow):
                known = np.zeros(len(before), np.bool_)
                known[asked[found]] = True
                return self._first_rows(versions, concerned & (before == NO_ROW), known, count)
            if len(found):
                keys = versions.rows.keys.take(versions.groups.newest[asked[found]])
                above = Piece(rows, keys, self.max_level + 1, -1)
                versions = _Versions.of([above, *versions.rows.pieces], self.function)
                before = np.where(before == NO_ROW, NO_ROW, before + len(found))
                before[asked[found]] = np.arange(len(found))
            merged = self._merged(versions, bypass=False)
        if self.rules.produces:
            self._write_compared(versions, np.where(concerned, before, NO_ROW), merged, concerned)
        kept = merged.place != NO_ROW
        self.counters.drop(OLDER_VERSION, count - len(kept))
        self.counters.drop(IGNORED_DELETE, int(len(kept) - kept.sum()))
        if self.drop_delete:
            gone = kept.copy()
            gone[kept] = retracts(merged.kinds[merged.place[kept]])
            self.counters.drop(DELETE_AT_BOTTOM, int(gone.sum()))
            kept &= ~gone
        self.counters.rows_out += int(kept.sum())
        return merged.batches(merged.place[kept])

    def _looked_up(self, versions: _Versions, wanted: Mask) -> tuple[Ints, Ints, pa.RecordBatch]:
        """The groups that are asked for, which of these the levels above have, and their rows there."""
        asked = np.flatnonzero(wanted)
        if self.look_up is None or not len(asked):
            return asked, np.zeros(0, np.int64), versions.rows.pieces[0].batch.slice(0, 0)
        newest = versions.groups.newest[asked]
        spec = self.function.key_spec
        columns = [versions.rows.column(name, newest) for name in spec.key_fields(versions.schema)]
        keys = pa.RecordBatch.from_arrays(columns, list(spec.key_columns))
        return asked, *self.look_up(versions.rows.keys.take(newest), keys)

    def _merged(self, versions: _Versions, *, bypass: bool) -> _Merged:
        function = self.function
        if isinstance(function, FoldFunction):
            output = function.fold(FoldInput(versions.rows, versions.groups, versions.kinds, bypass=bypass))
            self.counters.keys_folded += output.folded
            self.counters.keys_one_by_one += output.alone
            return _Merged(
                _end_to_end([_merged_piece(batch) for batch in output.batches]), np.arange(len(versions.groups))
            )
        picked = function.pick(versions.groups, versions.kinds, folded=False)
        if not bypass and getattr(function, "ignore_delete", False):
            picked = np.where(retracts(versions.kinds)[picked], NO_ROW, picked)
        return _Merged(versions.rows, picked)

    def _first_rows(self, versions: _Versions, new: Mask, known: Mask, count: int) -> list[pa.RecordBatch]:
        """Keys that are ``known`` above vanish, those that the compaction has above level 0 stay as they are, ``new`` ones are written as +I."""
        merged = self._merged(versions, bypass=True)
        there = merged.place != NO_ROW
        self.counters.drop(OLDER_VERSION, count - len(there))
        self.counters.drop(IGNORED_DELETE, int((~there).sum()))
        self.counters.drop(KNOWN_ABOVE, int((there & known).sum()))
        # Java writes a retract that is alone, and cannot compact it. It takes back nothing, for no older row is known: kept, it would
        # be the key's first row, and told, a change of a row that never was.
        lone = there & ~known
        lone[lone] = retracts(merged.kinds[merged.place[lone]])
        self.counters.drop(DELETE_AT_BOTTOM, int(lone.sum()))
        there &= ~lone
        if self.rules.produces:
            for batch in merged.batches(merged.place[there & new & ~known]):
                self.write_changes(batch)
        out = merged.place[there & ~known]
        self.counters.rows_out += len(out)
        return merged.batches(out)

    def _write_compared(self, versions: _Versions, before: Ints, merged: _Merged, concerned: Mask) -> None:
        """Write each key's change: ``before`` is a row of ``versions``, NO_ROW for none; a retract is no row that was there."""
        was = before != NO_ROW
        was &= ~retracts(versions.kinds)[before]
        listed = concerned & (merged.place != NO_ROW)
        adds = listed & ~retracts(merged.kinds)[merged.place] if len(merged.kinds) else listed
        insert, delete, update = adds & ~was, listed & ~adds & was, adds & was
        if self.rules.compared is not None and update.any():
            both = np.flatnonzero(update)
            equal = np.ones(len(both), np.bool_)
            for name in self.rules.compared:
                if name in versions.schema.names and not name.startswith(KEY_PREFIX) and equal.any():
                    sides = versions.rows.column(name, before[both]), merged.rows.column(name, merged.place[both])
                    code = codes(pa.concat_arrays([plain(side) for side in sides]))  # null equals null
                    equal &= code[: len(both)] == code[len(both) :]
            update[both[equal]] = False
        old, new = np.flatnonzero(delete | update), np.flatnonzero(insert | update)
        order = np.argsort(np.concatenate((old, new)), kind="stable")
        kinds = np.concatenate(
            (np.where(delete[old], DELETE, UPDATE_BEFORE), np.where(insert[new], INSERT, UPDATE_AFTER))
        )
        kinds = kinds[order].astype(np.int8)
        if merged.rows is versions.rows:
            batches = emit(versions.rows, np.concatenate((before[old], merged.place[new]))[order])
        else:
            rows = _end_to_end([*versions.rows.pieces, *merged.rows.pieces])
            batches = emit(rows, np.concatenate((before[old], merged.place[new] + len(versions.rows)))[order])
        done = 0
        for batch in batches:
            part = pa.array(kinds[done : done + batch.num_rows])
            columns = [part if n == VALUE_KIND else c for n, c in zip(batch.schema.names, batch.columns, strict=True)]
            self.write_changes(batch_of(columns, batch.schema))
            done += batch.num_rows


@dataclass(frozen=True, eq=False)
class _Merged:
    """The result of each key: the row ``place`` of ``rows``, NO_ROW where it has none."""

    rows: Rows
    place: Ints

    @cached_property
    def kinds(self) -> Ints:
        """The kind of each of ``rows``."""
        return self.rows.integers(VALUE_KIND, np.int8)

    def batches(self, chosen: Ints) -> list[pa.RecordBatch]:
        """The rows numbered ``chosen``, in that order."""
        return emit(self.rows, chosen)


@dataclass(frozen=True, eq=False)
class _Versions:
    """Rows by key, each key's in merge order, with the level of every row."""

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
        """Rows of each group."""
        return self.groups.ends - self.groups.starts

    @cached_property
    def group_of(self) -> Ints:
        """The group of each row."""
        found = np.empty(len(self.groups.order), np.int64)
        found[self.groups.order] = np.repeat(np.arange(len(self.groups)), self.sizes)
        return found

    def any(self, wanted: Mask) -> Mask:
        """Which groups have a row that is ``wanted``."""
        hit = np.zeros(len(self.groups), np.bool_)
        hit[self.group_of[wanted]] = True
        return hit

    def row_of(self, wanted: Mask) -> Ints:
        """For each group its row that is ``wanted``, NO_ROW for none."""
        found = np.full(len(self.groups), NO_ROW, np.int64)
        chosen = np.flatnonzero(wanted)
        found[self.group_of[chosen]] = chosen
        return found

    def with_lowest_high_only(self) -> _Versions:
        """Without the rows above level 0 of which a key has one on a lower level (above 0)."""
        high = np.flatnonzero(self.levels > 0)
        group = self.group_of[high]
        if len(high) == np.count_nonzero(np.bincount(group, minlength=1)):
            return self
        order = np.lexsort((self.levels[high], group))
        later = np.flatnonzero(group[order][1:] == group[order][:-1]) + 1
        kept = np.ones(len(self.levels), np.bool_)
        kept[high[order[later]]] = False
        pieces = []
        for piece, mine in zip(self.rows.pieces, np.split(kept, self.rows.offsets[1:-1]), strict=True):
            rows = np.flatnonzero(mine)
            batch = batch_of([taken(column, pa.array(rows)) for column in piece.batch.columns], piece.batch.schema)
            if len(rows):
                pieces.append(Piece(batch, piece.keys.take(rows), piece.level, piece.age))
        return _Versions.of(pieces, self.function)


def _end_to_end(pieces: Sequence[Piece]) -> Rows:
    """Pieces end to end, to take rows of them: their keys are not looked at."""
    sizes = np.array([0, *(len(piece) for piece in pieces)], dtype=np.int64)
    return Rows(tuple(pieces), pieces[0].keys, np.cumsum(sizes))


def _merged_piece(batch: pa.RecordBatch) -> Piece:
    """Merged rows, of which no key is asked for."""
    return Piece(batch, IntKeys(np.broadcast_to(np.int64(0), batch.num_rows)), 0, 0)


__all__ = ["Against", "ChangelogMerger", "ChangelogRules", "LookUp", "WriteChanges"]
