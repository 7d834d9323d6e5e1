"""Reference for record-level expiry (semantics.md 4.4): expired rows take no part in merging."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lsm_core.format.schema import TableSchema
from lsm_core.maintenance.reference.versions import Row
from lsm_core.options import TableOptions
from lsm_core.types import TypeRoot

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
