"""Scope of an overwrite: the partitions that the overwrite replaces, by mode or by a condition (`replaceWhere`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lsm_core.commit.overwrite import asked_scope
from lsm_core.errors import InvalidData, InvalidFilter, InvalidOption
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.manifest import partitions_of
from lsm_core.format.partitions import partition_specs, partition_values
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.read import Predicate, parse_filter

OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"
DYNAMIC_OVERWRITE: Final = "dynamic-partition-overwrite"
"""Option of a table and of a write that sets the scope of an overwrite."""
REPLACE_WHERE: Final = "replaceWhere"
_PLACE: Final = "\0place"
_ELSE: Final = "for other rows use lsm_core.spark.delete_where(spark, table, condition), then append"


Scope: TypeAlias = "Mapping[str, Any] | str | None"
"""Scope of an overwrite: as for `Committer.overwrite`, or a condition on partition columns as SQL text."""


def overwrite_scope(store: TableStore, mode: str | None, session_mode: str | None) -> dict[str, Any] | None:
    """Return what an overwrite without named partitions replaces: the whole table, or the partitions that get rows.

    The first of these settings decides: ``mode``, the write's own option `dynamic-partition-overwrite` (`Table.copy`),
    ``session_mode``, and the table's stored option (true by default).

    Args:
        store: The table, with the write's own options on top.
        mode: The write's option `partitionOverwriteMode`, "static" or "dynamic"; None without one.
        session_mode: The session's `spark.sql.sources.partitionOverwriteMode`; None leaves it to the table.

    Returns:
        None for the partitions that get rows (dynamic), ``{}`` for the whole table (static): the form that
            `Committer.overwrite` accepts.
    """
    if mode:
        return None if mode.lower() == "dynamic" else {}
    if session_mode and DYNAMIC_OVERWRITE not in store.dynamic_options:
        return None if session_mode.lower() == "dynamic" else {}
    scope = asked_scope(store, None)
    return None if scope is None else dict(scope)


def replace_condition(store: TableStore, where: str) -> Predicate:
    """Parse a condition of `replaceWhere`.

    Args:
        store: The table.
        where: The condition as SQL text.

    Returns:
        The condition, on partition columns alone.

    Raises:
        InvalidOption: The table has no partitions, or the text is no condition on partition columns alone.
    """
    keys = store.schema.partition_keys
    if not keys:
        raise InvalidOption(REPLACE_WHERE, where, f"nothing, as the table has no partitions; {_ELSE}", store.name)
    accepted = f"a condition on the partition columns {', '.join(keys)}; {_ELSE}"
    try:
        predicate = parse_filter(where, store.schema, store.name)
    except InvalidFilter as error:
        raise InvalidOption(REPLACE_WHERE, where, f"{accepted} ({error})", store.name) from error
    if predicate is None or not predicate.columns or not set(predicate.columns) <= set(keys):
        raise InvalidOption(REPLACE_WHERE, where, accepted, store.name)
    return predicate


def replaced_partitions(store: TableStore, where: str, written: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the partitions that an overwrite with a condition replaces.

    Args:
        store: The table.
        where: The condition as SQL text, on partition columns alone.
        written: The serialised partitions that get rows.

    Returns:
        The partitions of the table and of the new rows for which the condition is true, for `Committer.overwrite`.

    Raises:
        InvalidData: The condition is not true for a partition that gets rows.
        InvalidOption: The table has no partitions, or the text is no condition on partition columns alone.
    """
    predicate = replace_condition(store, where)
    new = sorted(set(written))
    inside = set(_matching(store, predicate, new))
    outside = [partition for partition in new if partition not in inside]
    if outside:
        name = partition_specs(store.schema, outside[:1], store.options)[0]
        reason = f"new rows of partition {name} lie outside the condition of {REPLACE_WHERE}: {where}"
        raise InvalidData(store.name, ", ".join(store.schema.partition_keys), reason)
    snapshot = snapshots.latest(store)
    live = [] if snapshot is None else partitions_of(manifests.live_entries(store, snapshot, columns=["partition"]))
    inside.update(_matching(store, predicate, live))
    return [partition_values(store.schema, partition) for partition in sorted(inside)]


def _matching(store: TableStore, predicate: Predicate, partitions: Sequence[bytes]) -> list[bytes]:
    """Return the serialized partitions for whose values the condition is true."""
    values = decode_rows(pa.array(partitions, pa.binary()), list(store.schema.partition_types))
    places = pa.array(range(len(partitions)), pa.int64())
    batch = pa.RecordBatch.from_arrays([*values, places], names=[*store.schema.partition_keys, _PLACE])
    return [partitions[place] for place in np.asarray(predicate.apply(batch).column(_PLACE))]
