"""Departure reports of every flight, with late, wrong, corrected and repeated ones: the thin stand-in for `flight_status`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assets.demo.events import Part, arranged, part
from assets.demo.mixer import mix, percent
from assets.demo.source import LAST_BATCH, Integers, batches, flights, local_dates, months_text

SCHEMA = pa.schema(
    [
        pa.field("flight_month", pa.string(), nullable=False),
        pa.field("flight_date", pa.date32(), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        ("dep_ts", pa.timestamp("ms")),
        ("dep_time", pa.int32()),
        ("dep_delay", pa.int32()),
        ("cancelled", pa.bool_()),
    ]
)
_MINUTE = 60_000
_BLIZZARD = np.array(["2013-02-08", "2013-02-09"], dtype="datetime64[D]")


def _timestamps(values: Integers) -> pa.Array:
    return pa.array(values.astype(np.int64)).cast(pa.timestamp("ms"))


def events() -> pa.Table:
    """Every report in order: `_commit`, `_ord`, `_kind`, then SCHEMA."""
    source = flights()
    n = source["rn"].to_numpy()
    dates = local_dates(source)
    month = source["month"].to_numpy()
    live, backfill = month >= 10, month <= 9
    cancelled = pc.is_null(source["dep_time"]).combine_chunks().to_numpy(zero_copy_only=False)
    departed = ~cancelled
    delay = pc.fill_null(source["dep_delay"], 0).combine_chunks().to_numpy().astype(np.int64)
    scheduled = (
        source["time_hour"].cast(pa.int64()).to_numpy() * 1000 + source["minute"].to_numpy().astype(np.int64) * _MINUTE
    )
    dep = scheduled + np.where(cancelled, 60, delay) * _MINUTE
    table = {
        "flight_month": months_text(dates),
        "flight_date": pa.array(dates),
        "dep_ts": _timestamps(dep),
        "cancelled": pa.array(cancelled),
        **{
            name: source[name].combine_chunks()
            for name in ("carrier", "flight", "origin", "dep_time", "dep_delay", "sched_dep_time")
        },
    }
    batch = batches(dates)
    fix = live & departed & percent(n, 7, 4)
    false = live & cancelled & percent(n, 10, 1, of=10)
    blizzard = cancelled & np.isin(dates, _BLIZZARD)

    def commit(batch_number: Integers) -> Integers:
        return np.asarray(10 + 3 * np.minimum(batch_number, LAST_BATCH))

    late = np.where(percent(n, 5, 3), batch + 1 + mix(n, 6) % 3, batch)
    first = np.where(fix, np.where(mix(n, 9) % 3 == 0, batch + 1, batch), np.where(false, batch, late))
    reversed_pair = mix(n, 11) % 2 == 1
    wrong_delay = pa.array(delay + 1 + mix(n, 8) % 15, pa.int32(), mask=cancelled)
    first_delay = pc.if_else(pa.array(fix), wrong_delay, table["dep_delay"])
    on_time = {
        "dep_ts": _timestamps(scheduled),
        "dep_time": table["sched_dep_time"],
        "dep_delay": pa.array(np.zeros(len(n), np.int32)),
        "cancelled": pa.array(np.zeros(len(n), np.bool_)),
    }
    corrected = {"dep_ts": _timestamps(dep + 90 * _MINUTE)}
    last = {"dep_ts": _timestamps(np.where(fix, dep + 90 * _MINUTE, dep))}
    parts: list[Part] = [
        part(table, backfill & ~blizzard, (month - 1).astype(np.int64), 0),
        part(table, blizzard, np.full(len(n), 10 + 3 * 9), 0),
        part(table, live, commit(first), np.where(false & reversed_pair, 1, 0), replaced={"dep_delay": first_delay}),
        part(table, fix, commit(batch), 1, replaced=corrected),
        part(table, false, commit(batch), np.where(reversed_pair, 0, 1), replaced=on_time),
        part(table, live & percent(n, 12, 3), commit(batch + 1), 2, replaced=last),
    ]
    return arranged(parts, SCHEMA)
