"""Which unit of a bucket to compact: the tree's strategies, and the two rules by which Dredge protects answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lsm_core.clock import local_offset_ms
from lsm_core.merge.order_free import order_free
from lsm_core.metadata.store import TableStore
from lsm_core.read.prune import ExpiredFiles
from lsm_core.tree import DataFile, Decision, Decline, Levels, Pick, close_unit, decide_bucket, post_filter

NOTHING_EXPIRED: Final = ExpiredFiles()


def levels_of(store: TableStore, files: Sequence[DataFile]) -> Levels:
    """The tree of a bucket."""
    return Levels(files, store.options.num_levels)


def decide(
    store: TableStore,
    files: Sequence[DataFile],
    now_ms: int,
    full: bool = False,
    expired: ExpiredFiles = NOTHING_EXPIRED,
) -> Decision:
    """What the table's options pick among all live ``files`` of one bucket at epoch ms ``now_ms``.

    Off-peak hours are those of this machine's time zone, as in Paimon.

    ``expired``: those of them with rows whose record-level lifetime is over by then. Where merging a part of the runs could
    change an answer (order-sensitive tables) the unit is extended until no older run overlaps it, unless
    `dredge.compaction.order-sensitive` is `as-paimon`.
    """
    levels = levels_of(store, files)
    decision = decide_bucket(
        levels,
        store.options,
        now_ms,
        full=full,
        utc_offset_ms=local_offset_ms(now_ms),
        must_rewrite=lambda file: file.name in expired.known,
    )
    if isinstance(decision, Decline):
        return decision
    # first-row answers without level 0 only if every key lies once above it: nobody looks keys up here, so units are closed
    looks_up = store.options.merge_engine == "first-row"
    unit = decision.unit
    retracts = any(file.delete_row_count != 0 for file in unit.files)
    over = any(file.name in expired.possible for file in unit.files)
    if not looks_up and order_free(store.schema, store.options.raw, retracts, store.name, over).ok:
        return decision
    if not looks_up and store.options.order_sensitive == "as-paimon":
        return decision
    closed = close_unit(levels, unit)
    if closed == unit:
        return decision
    return post_filter(Pick(closed, decision.trigger, {**decision.facts, "closed_files": len(closed.files)}))


def keeps_tombstones(store: TableStore, files: Sequence[DataFile], now_ms: int) -> bool:
    """Whether deletes must outlive this compaction: on tables with `sequence.field` a late, older insert of a deleted
    key would come back, so `dredge.tombstone-retention` keeps tombstones of files younger than that.

    Not the deletes of `partial-update.remove-record-on-*` alone: there any later insert brings the row back, however small its
    ordering fields, in Java too (`PartialUpdateMergeFunction.add`); a kept delete would only lend it the deleted values.
    """
    retention = store.options.tombstone_retention
    if retention <= 0 or not store.options.sequence_field:
        return False
    return any(file.delete_row_count != 0 and now_ms - file.creation_ms < retention for file in files)
