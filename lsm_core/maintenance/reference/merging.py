"""Reference merge of all keys: the table's merge engine applies the sorted versions of each key.

The result of `deduplicate` and `first-row` is one of the versions (semantics.md 3.1, 3.2). Expired rows take no part
(record-level expiry, semantics.md 4.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lsm_core.errors import RetractNotSupported, UnsupportedFeature
from lsm_core.format.schema import TableSchema
from lsm_core.maintenance.reference.aggregation import AggregationMerge
from lsm_core.maintenance.reference.partial_update import PartialUpdateMerge
from lsm_core.maintenance.reference.versions import Row, key_order, sort_in_merge_order
from lsm_core.options import TableOptions
from lsm_core.types import TypeRoot


def last_row(versions: Sequence[Row], ignore_delete: bool) -> Row | None:
    """Return the last version, which may be a delete (`deduplicate`).

    Args:
        versions: versions of one key in merge order.
        ignore_delete: skip retracts, so that the last version that is not a retract wins.
    """
    left = [row for row in versions if not (ignore_delete and row.retracts)]
    return left[-1] if left else None


def first_row(versions: Sequence[Row], ignore_delete: bool) -> Row | None:
    """Return the first version (`first-row`).

    Args:
        versions: versions of one key in merge order.
        ignore_delete: skip retracts.

    Raises:
        RetractNotSupported: a version is a retract and ``ignore_delete`` is False.
    """
    first = None
    for row in versions:
        if row.retracts:
            if ignore_delete:
                continue
            raise RetractNotSupported(f"first-row: key {row.key} has a retract; set `ignore-delete` to skip retracts")
        if first is None:
            first = row
    return first


_IGNORE_DELETE = (
    "ignore-delete",
    "deduplicate.ignore-delete",
    "first-row.ignore-delete",
    "partial-update.ignore-delete",
)


def merge_rows(
    rows: Iterable[Row], schema: TableSchema, options: Mapping[str, str], drop_delete: bool = False
) -> list[Row]:
    """Merge rows of any keys and return at most one row per key, by ascending key.

    Args:
        rows: versions in any order; of versions equal in everything the later one wins. Engines that build rows need
            all columns of ``schema`` in ``values``, in its order and as plain values.
        schema: schema of the table.
        options: table options as they are stored.
        drop_delete: drop keys whose result is a retract.

    Raises:
        UnsupportedFeature: the merge engine is unknown. Errors of the engine pass through.
    """
    outcomes = merge_by_key(rows, schema, options, drop_delete)
    return [row for key in sorted(outcomes) if (row := outcomes[key]) is not None]


def merge_by_key(
    rows: Iterable[Row], schema: TableSchema, options: Mapping[str, str], drop_delete: bool = False
) -> dict[tuple[Any, ...], Row | None]:
    """Merge rows of any keys, and return the merged row of each key.

    Args:
        rows: versions in any order.
        schema: schema of the table.
        options: table options as they are stored.
        drop_delete: return None instead of a merged row that is a retract.

    Returns:
        The merged row by the comparable form of its key (:func:`key_order`); None for a key without a row.
    """
    engine = Engine(schema, options)
    descending = is_descending(options)
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(key_order(row.key), []).append(row)
    outcomes: dict[tuple[Any, ...], Row | None] = {}
    for key, group in groups.items():
        result = engine.result(sort_in_merge_order(group, descending) if len(group) > 1 else group)
        outcomes[key] = None if result is None or (drop_delete and result.retracts) else result
    return outcomes


def merge_versions(
    schema: TableSchema, options: Mapping[str, str], versions: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Merge the versions of one key; a lone version is returned unchanged.

    Args:
        schema: schema of the table.
        options: table options as they are stored.
        versions: rows ``{"_SEQUENCE_NUMBER", "_VALUE_KIND", columns...}`` in merge order.

    Returns:
        The merged row in the same form, or None if no row is left.
    """
    names = schema.field_names
    rows = [
        Row((), (), int(v["_SEQUENCE_NUMBER"]), int(v["_VALUE_KIND"]), tuple(v[name] for name in names))
        for v in versions
    ]
    result = Engine(schema, options).result(rows)
    if result is None:
        return None
    return {
        "_SEQUENCE_NUMBER": result.sequence,
        "_VALUE_KIND": result.kind,
        **dict(zip(names, result.values, strict=True)),
    }


def builds_rows(options: Mapping[str, str]) -> bool:
    """Return whether the merge engine builds new rows; otherwise every result is one of the versions.

    Args:
        options: table options as they are stored.
    """
    return options.get("merge-engine", "deduplicate").lower() in {"partial-update", "aggregation"}


def is_descending(options: Mapping[str, str]) -> bool:
    """Return whether the version with the smallest value of `sequence.field` is the newest.

    Args:
        options: table options as they are stored.
    """
    return options.get("sequence.field.sort-order", "ascending").lower() == "descending"


class Engine:
    """Merge engine of one table, as the reference implements it row by row."""

    def __init__(self, schema: TableSchema, options: Mapping[str, str]) -> None:
        self.name = options.get("merge-engine", "deduplicate").lower()
        known = ("deduplicate", "first-row", "partial-update", "aggregation")
        if self.name not in known:
            raise UnsupportedFeature(f"merge engine {self.name} in the reference", ", ".join(schema.primary_keys))
        self._ignore_delete = any(options.get(name, "false").lower() == "true" for name in _IGNORE_DELETE)
        self._schema, self._options = schema, options
        ordering = [name.strip() for name in options.get("sequence.field", "").split(",") if name.strip()]
        self._ordering = [schema.field_names.index(name) for name in ordering if name in schema.field_names]

    def result(self, versions: Sequence[Row], *, asks_alone: bool = False) -> Row | None:
        """Return the merged row of one key, or None if no row is left.

        Args:
            versions: versions of the key in merge order.
            asks_alone: run the engine on a lone version too; otherwise it is returned unchanged, also if it is a
                delete.
        """
        if len(versions) == 1 and not asks_alone:
            return versions[0]
        if self.name == "deduplicate":
            return last_row(versions, self._ignore_delete)
        if self.name == "first-row":
            return first_row(versions, self._ignore_delete)
        merge: PartialUpdateMerge | AggregationMerge
        if self.name == "partial-update":
            merge = PartialUpdateMerge(self._schema, self._options, self._ignore_delete)
        else:
            merge = AggregationMerge(self._schema, self._options)
        for row in versions:
            merge.add(row)
        last, (sequence, kind, values) = versions[-1], merge.result()
        order = tuple(values[i] for i in self._ordering) if last.sequence_fields else ()
        return Row(last.key, order, sequence, kind, tuple(values), last.level, last.age)


_MILLISECONDS_FROM = 10**12


def living(rows: Iterable[Row], schema: TableSchema, options: Mapping[str, str], now_ms: int) -> list[Row]:
    """Return the rows that have not expired.

    Args:
        rows: versions whose ``values`` hold all columns of ``schema``, timestamps as their number of units.
        schema: schema of the table.
        options: table options; without `record-level.expire-time` no row expires.
        now_ms: time of the check (epoch ms). A row whose time is null never expires.
    """
    table_options = TableOptions(options, stored=True)
    duration = table_options.get("record-level.expire-time")
    if duration is None:
        return list(rows)
    name = str(table_options.get("record-level.time-field"))
    place, kind = schema.field_names.index(name), schema.field(name).type
    lifetime, now = int(duration) // 1000, now_ms // 1000

    def seconds(value: int) -> int:
        if kind.root is TypeRoot.INT:
            return value
        if kind.root is TypeRoot.BIGINT:
            return value // 1000 if value >= _MILLISECONDS_FROM else value
        precision = kind.precision or 0
        return value // (10**3 if precision <= 3 else 10**6 if precision <= 6 else 10**9)

    return [row for row in rows if row.values[place] is None or now <= seconds(row.values[place]) + lifetime]
