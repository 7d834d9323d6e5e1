"""Partitions that a procedure or compaction applies to.

The partitions are chosen by name, by a condition, or by the time since their last change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import InvalidFilter, InvalidOption
from lsm_core.format.partitions import partition_bytes, partition_value, partition_values
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import snapshots
from lsm_core.metadata.live_files import NEWEST, totals
from lsm_core.metadata.store import TableStore
from lsm_core.read.predicate import parse_filter
from lsm_core.read.prune import prune_partitions
from lsm_core.read.sql_text import condition_groups


def without_null_name(store: TableStore, spec: Mapping[str, str]) -> dict[str, str | None]:
    """Return a copy of ``spec`` in which None replaces `partition.default-name`, the text that stands for null."""
    null = store.options.partition_default_name
    return {key: None if value == null else value for key, value in spec.items()}


def chosen_partitions(store: TableStore, arguments: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the partitions that `partitions` or `where` select, as typed values.

    Args:
        store: the table.
        arguments: arguments of a procedure; only `partitions` and `where` are used.

    Returns:
        One mapping of column to value for each partition; None (all partitions) if neither argument is set. The list is
        empty for a table without snapshots.

    Raises:
        InvalidOption: both arguments are set, or the table has no partition columns.
        InvalidFilter: the condition is not on partition columns.
    """
    specs, where = arguments.get("partitions"), arguments.get("where")
    if specs is None and where is None:
        return None
    if specs is not None and where is not None:
        raise InvalidOption("where", where, "no value together with partitions; give one of the two", store.name)
    keys = store.schema.partition_keys
    if not keys:
        option = "partitions" if specs else "where"
        raise InvalidOption(option, specs or where, "no value, because the table has no partitions", store.name)
    snapshot = snapshots.latest(store)
    if snapshot is None:
        return []
    candidates = totals(store, snapshot, ("partition",), waiting=True)
    groups = condition_groups(str(where), store.name) if specs is None else [_equal_to(store, spec) for spec in specs]
    groups = [[_convert_test(store, test) for test in group] for group in groups]
    chosen = prune_partitions(store.schema, candidates, parse_filter(groups, store.schema, store.name))
    if not chosen.num_rows and specs is not None:
        _require_no_outer_blanks(store, candidates, specs)
    return [partition_values(store.schema, partition) for partition in chosen.column("partition").to_pylist()]


def _require_no_outer_blanks(store: TableStore, candidates: pa.Table, specs: Sequence[Mapping[str, str]]) -> None:
    """Check that no partition has the values of ``specs`` with blanks around them, which `partitions` cannot name.

    Raises:
        InvalidFilter: there is such a partition; the message shows the condition that names it.
    """
    for partition in candidates.column("partition").to_pylist():
        values = partition_values(store.schema, partition)
        texts = {key: value for key, value in values.items() if isinstance(value, str) and value != value.strip()}
        if texts and any(all(str(values.get(key)).strip() == value for key, value in spec.items()) for spec in specs):
            escaped = {key: value.replace("'", "''") for key, value in texts.items()}
            condition = " AND ".join(f"{key} = '{value}'" for key, value in escaped.items())
            raise InvalidFilter(
                f"table {store.name}: no partition has these values, but one has blanks around them; name it by a "
                f"condition: {condition}"
            )


def encode_chosen(
    store: TableStore, partitions: Sequence[Mapping[str, Any]] | None, where: str | None
) -> list[bytes] | None:
    """Return the chosen partitions as BinaryRow bytes, ascending; None for all.

    Args:
        store: the table.
        partitions: partitions (typed values, None = null), None for all.
        where: condition on partition columns, in place of ``partitions``.

    Raises:
        InvalidOption: both arguments are set, or the table has no partition columns.
        InvalidFilter: a partition or the condition does not fit the table.
    """
    if where is not None:
        partitions = chosen_partitions(store, {"where": where, "partitions": partitions})
    return None if partitions is None else sorted({partition_bytes(store.schema, p, store.name) for p in partitions})


def chosen_to_text(chosen: Sequence[bytes] | None) -> str | None:
    """Return partitions as hex digits separated by blanks, as plans store them; None for all."""
    return None if chosen is None else " ".join(partition.hex() for partition in chosen)


def chosen_from_text(text: object) -> list[bytes] | None:
    """Return the partitions that :func:`chosen_to_text` wrote as ``text``.

    Raises:
        ValueError: the text holds no hex digits.
    """
    return None if text is None else [bytes.fromhex(part) for part in str(text).split()]


def typed_partitions(store: TableStore, specs: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the typed values of named partitions, which may not exist.

    Args:
        store: the table.
        specs: partitions as texts by column.

    Raises:
        InvalidFilter: a column is no partition column, or a value does not fit its type.
    """
    tests = ([_convert_test(store, test) for test in _equal_to(store, spec)] for spec in specs)
    return [{name: value for name, _, value in group} for group in tests]


def idle_partitions(store: TableStore, snapshot: Snapshot, idle_ms: int, now_ms: int) -> list[bytes]:
    """Return the partitions whose newest file is at least ``idle_ms`` old at ``now_ms``, as BinaryRow bytes.

    A table without partitions counts as one partition. As in Java, the newest file may be one that was
    deleted since.
    """
    sizes = totals(store, snapshot, ("partition",), waiting=True)
    newest = pc.fill_null(sizes.column(NEWEST), pa.scalar(0, pa.int64()))
    idle: list[bytes] = sizes.filter(pc.less_equal(newest, now_ms - idle_ms)).column("partition").to_pylist()
    return sorted(idle)


def _equal_to(store: TableStore, spec: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    return [(key, "is null" if value is None else "=", value) for key, value in without_null_name(store, spec).items()]


def _convert_test(store: TableStore, test: tuple[str, str, Any]) -> tuple[str, str, Any]:
    """Return a test (column, operator, value) with the value converted to the type of the partition column.

    Raises:
        InvalidFilter: the column is no partition column.
    """
    column, operator, value = test
    keys, error_prefix = store.schema.partition_keys, f"table {store.name}: "
    name = next((key for key in keys if key == column), None) or next(
        (key for key in keys if key.lower() == column.lower()), None
    )
    if name is None:
        raise InvalidFilter(f"{error_prefix}'{column}' is not a partition column; they are {', '.join(keys)}")
    kind = store.schema.partition_types[keys.index(name)]
    several = isinstance(value, Sequence) and not isinstance(value, str)
    values = [
        operand if operand is None else partition_value(name, operand, kind, error_prefix)
        for operand in (value if several else [value])
    ]
    return name, operator, values if several else values[0]
