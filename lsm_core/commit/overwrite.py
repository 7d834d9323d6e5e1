"""Which files an overwrite replaces: everything in its scope as the table stands at the attempt (format.md 14.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.changes import NO_ENTRIES, deletions_of, partitions_of
from lsm_core.errors import ColumnNotFound, InvalidData
from lsm_core.format.partition_path import partition_values
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore
from lsm_core.types import to_arrow

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Scope:
    """The partitions to replace: ``partitions`` None means "whatever ``spec`` matches"; an empty spec is the whole table."""

    partitions: tuple[bytes, ...] | None
    spec: Values

    @property
    def is_empty(self) -> bool:
        """A dynamic overwrite without new files: nothing to do."""
        return self.partitions is not None and not self.partitions


def scope_of(store: TableStore, added: pa.Table, partition_spec: Values | None) -> Scope:
    """The scope of an overwrite that brings ``added``.

    ``None``: the partitions that receive files (dynamic), or the whole table when it has no partitions; ``{}``: the
    whole table; ``{column: value}``: the partitions with these values. Raises :class:`ColumnNotFound` on a column that
    is no partition column and :class:`InvalidData` when a new file lies outside.
    """
    keys = store.schema.partition_keys
    if partition_spec is None:
        return Scope(tuple(partitions_of(added)), {}) if keys else Scope(None, {})
    for name in partition_spec:
        if name not in keys:
            raise ColumnNotFound(store.name, name, keys)
    scope = Scope(None, {name: _typed(store, name, value) for name, value in partition_spec.items()})
    matches = _matcher(store, scope.spec)
    for partition in partitions_of(added):
        if not matches(partition):
            values = partition_values(store.schema, partition)
            raise InvalidData(
                store.name, ", ".join(scope.spec), f"new rows of partition {values} lie outside {dict(scope.spec)}"
            )
    return scope


def overwrite_entries(
    store: TableStore, latest: Snapshot | None, added: pa.Table, scope: Scope
) -> tuple[pa.Table, pa.Table]:
    """Live entries of the scope, and the change: delete all of them, add ``added``. Postpone buckets (< 0) stay."""
    if latest is None:
        return NO_ENTRIES, added
    partitions = None if scope.partitions is None else list(scope.partitions)
    live = manifests.live_entries(store, latest, partitions=partitions)
    live = live.filter(pc.greater_equal(live.column("bucket"), 0))
    if scope.spec:
        matches = _matcher(store, scope.spec)
        chosen = [partition for partition in partitions_of(live) if matches(partition)]
        live = live.filter(pc.is_in(live.column("partition"), pa.array(chosen, pa.binary())))
    return live, pa.concat_tables([deletions_of(live), added])


def _matcher(store: TableStore, spec: Values) -> Callable[[bytes], bool]:
    def matches(partition: bytes) -> bool:
        values = partition_values(store.schema, partition)
        return all(_same(values[name], wanted) for name, wanted in spec.items())

    return matches


def _same(left: object, right: object) -> bool:
    return left == right or (left != left and right != right)  # noqa: PLR0124 - NaN is one partition


def _typed(store: TableStore, name: str, value: object) -> object:
    """``value`` as the partition column's own type, so that "2024-01-01" means a DATE where the column is one."""
    if value is None:
        return None
    wanted = to_arrow(store.schema.field(name).type)
    try:
        given = pa.scalar(value)
        return given.as_py() if given.type.equals(wanted) else given.cast(wanted).as_py()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidData(store.name, name, f"{value!r} is no value of this partition column: {error}") from error


def entries_source(
    store: TableStore, added: pa.Table, scope: Scope
) -> Callable[[Snapshot | None], tuple[pa.Table, pa.Table]]:
    """The overwrite's change as a function of the latest snapshot, asked anew at every attempt."""

    def source(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
        return overwrite_entries(store, latest, added, scope)

    return source


__all__: Sequence[str] = ["Scope", "entries_source", "overwrite_entries", "scope_of"]
