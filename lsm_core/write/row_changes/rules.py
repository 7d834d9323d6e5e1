"""Which tables take which statement: what the merge engine could not carry out is refused before anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from lsm_core.errors import ColumnNotFound, InvalidFilter, InvalidOption, UnsupportedFeature
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.read import Scan, plan_scan
from lsm_core.read.predicate import Predicate, parse_filter

_REMOVING: Final = {
    "partial-update": ("partial-update.remove-record-on-delete", "partial-update.remove-record-on-sequence-group"),
    "aggregation": ("aggregation.remove-record-on-delete",),
}
_UPDATABLE: Final = ("deduplicate", "partial-update")


def require_delete(store: TableStore) -> None:
    """Raise UnsupportedFeature, naming the option, unless a -D row deletes its key (the engines of Spark's DELETE)."""
    if not store.schema.primary_keys:
        return
    engine = store.options.merge_engine
    if engine == "first-row":
        raise UnsupportedFeature("merge engine first-row, which takes no deletes, with DELETE", store.name)
    if store.options.ignore_delete:
        raise UnsupportedFeature("DELETE while option 'ignore-delete' is true, which drops it", store.name)
    wanted = _REMOVING.get(engine, ())
    if wanted and not any(store.options.get(key) for key in wanted):
        feature = f"merge engine {engine} with DELETE, unless option '{wanted[0]}' is true"
        raise UnsupportedFeature(feature, store.name)


def require_update(store: TableStore, columns: Mapping[str, Any]) -> None:
    """Raise UnsupportedFeature for an engine or a column that UPDATE cannot change, ColumnNotFound for one that is not there."""
    if not isinstance(columns, Mapping) or not columns:
        raise InvalidOption("values", str(columns), "a mapping of at least one column to its new value", store.name)
    named = list(columns)
    for name in named:
        if not store.schema.has_field(name):
            raise ColumnNotFound(store.name, name, store.schema.field_names)
    schema, options = store.schema, store.options
    bucket_keys = schema.bucket_keys if options.bucket > 0 else ()
    kinds = (options.rowkind_field,) if schema.primary_keys and options.rowkind_field else ()
    fixed = (
        ("primary key", schema.primary_keys),
        ("partition", schema.partition_keys),
        ("bucket key", bucket_keys),
        ("row kind", kinds),
    )
    for what, members in fixed:
        for name in named:
            if name in members:
                raise UnsupportedFeature(f"UPDATE of the {what} column '{name}'", store.name)
    if schema.primary_keys and options.merge_engine not in _UPDATABLE:
        raise UnsupportedFeature(f"UPDATE of a table with merge engine {options.merge_engine}", store.name)


def require_upsert(store: TableStore, columns: Iterable[str]) -> None:
    """Raise UnsupportedFeature unless new rows replace, or are merged into, those of their key."""
    if not store.schema.primary_keys:
        raise UnsupportedFeature("upserts into a table without primary key", store.name)
    engine = store.options.merge_engine
    if engine == "first-row":
        raise UnsupportedFeature(
            "upserts into a table with merge engine first-row, which keeps what is there", store.name
        )
    given = set(columns)
    left_out = [name for name in store.schema.field_names if name not in given]
    if left_out and engine == "deduplicate":
        said = ", ".join(f"'{name}'" for name in left_out)
        raise UnsupportedFeature(
            f"upserts without all columns ({said}) unless the merge engine is partial-update", store.name
        )


def chosen_rows(store: TableStore, given: object, verb: str) -> Predicate:
    """The filter of a statement. Raises InvalidFilter for none: a forgotten filter would change every row."""
    predicate = parse_filter(given, store.schema, store.name)
    if predicate is None:
        raise InvalidFilter(
            f"table {store.name}: {verb} without a filter would change every row; "
            "say so with pyarrow.compute.scalar(True), or use truncate()"
        )
    return predicate


def scan_of_newest(store: TableStore, predicate: Predicate) -> Scan:
    """A scan of the newest version. Raises InvalidOption when an option of the table names another one."""
    newest = snapshots.latest_id(store)
    scan = plan_scan(store, filter=predicate)
    if scan.snapshot is not None and newest is not None and scan.snapshot.id < newest:
        raise InvalidOption(
            "scan.mode", str(store.options.get("scan.mode")), "the newest version to change rows", store.name
        )
    return scan


__all__ = ["chosen_rows", "require_delete", "require_update", "require_upsert", "scan_of_newest"]
