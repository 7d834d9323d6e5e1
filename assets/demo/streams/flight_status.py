"""Reports of three agencies about every flight: late, wrong, corrected, repeated and withdrawn ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from dredge.assets.demo.events import Part, arrange, hash_numbers, make_part, select_percent
from dredge.assets.demo.source import Integers, months_text
from dredge.assets.demo.streams.flights import DAY, HOUR, MINUTE, Flags, Flights, all_flights, choose, timestamps

_TIME: Final = pa.timestamp("ms")
SCHEMA = pa.schema(
    [
        pa.field("flight_month", pa.string(), nullable=False),
        pa.field("flight_date", pa.date32(), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        ("sched_ts", _TIME),
        *[("dest", pa.string()), ("tailnum", pa.string())],
        *[(name, pa.int32()) for name in ("sched_dep_time", "sched_arr_time", "distance")],
        ("dep_ts", _TIME),
        *[("dep_time", pa.int32()), ("dep_delay", pa.int32()), ("cancelled", pa.bool_()), ("dep_reports", pa.int32())],
        ("arr_ts", _TIME),
        *[("arr_time", pa.int32()), ("arr_delay", pa.int32()), ("air_time", pa.int32())],
        *[("diverted", pa.bool_()), ("arr_reports", pa.int32())],
    ]
)
_KEY: Final = SCHEMA.names[:5]
_SCHEDULE, _DEPARTURE, _ARRIVAL = SCHEMA.names[5:11], SCHEMA.names[11:16], SCHEMA.names[16:]
_GROUPS: Final = (_SCHEDULE, _DEPARTURE, _ARRIVAL)
OPTIONS: Final = {
    "bucket": "2",
    "merge-engine": "partial-update",
    **{f"fields.{first}.sequence-group": ",".join(others) for first, *others in _GROUPS},
    "fields.dep_reports.aggregate-function": "sum",
    "fields.arr_reports.aggregate-function": "sum",
    "partial-update.remove-record-on-sequence-group": "sched_ts",
}
_WITHDRAWN_FLIGHT: Final = 10_000
_BLIZZARD_BATCH, _AUDIT_BATCH = 9, 3
Columns = Mapping[str, pa.Array]


class _Stream:
    """Reports of one agency, which set only the key and the agency's columns; each batch has one commit per agency.

    Args:
        flights: all flights.
        columns: columns of a correct report of each flight, by name.
        number: position of the agency in `_GROUPS`.
    """

    def __init__(self, flights: Flights, columns: Columns, number: int) -> None:
        self._flights, self._number, own_group = flights, number, _GROUPS[number]
        self._columns = {
            field.name: columns[field.name]
            if field.name in (*_KEY, *own_group)
            else pa.nulls(len(flights.rn), field.type)
            for field in SCHEMA
        }

    def __call__(
        self, selected: Flags, batch: Integers, step: Integers | int, kind: str = "+I", **replaced: pa.Array
    ) -> Part:
        commit = 9 + self._number + 3 * self._flights.clipped(batch)
        return make_part(self._columns, selected, commit, step, kind, replaced)


def events() -> pa.Table:
    """Return all reports in order: `_commit`, `_ord`, `_kind`, then SCHEMA."""
    flights = all_flights()
    columns = _columns(flights)
    return arrange(
        [
            _backfill(flights, columns),
            *_schedule(flights, columns),
            *_departures(flights, columns),
            *_arrivals(flights, columns),
        ],
        SCHEMA,
    )


def _columns(flights: Flights) -> dict[str, pa.Array]:
    """Return the columns of a correct report of each flight, by name."""
    report_count = pa.array(np.ones(len(flights.rn), np.int32))
    computed = {
        "flight_month": months_text(flights.dates),
        "flight_date": pa.array(flights.dates),
        "sched_ts": timestamps(flights.scheduled - DAY),
        "dep_ts": timestamps(flights.departure),
        "arr_ts": timestamps(flights.arrival, flights.landed),
        "cancelled": pa.array(flights.cancelled),
        "diverted": pa.array(flights.diverted),
        "dep_reports": report_count,
        "arr_reports": report_count,
    }
    return {name: computed[name] if name in computed else flights.column(name) for name in SCHEMA.names}


def _backfill(flights: Flights, columns: Columns) -> Part:
    """Return one complete row per flight of January to September, with two gaps that late corrections fill.

    Args:
        flights: all flights.
        columns: columns of a correct report of each flight, by name.
    """
    known_departure, landed = ~flights.blizzard, flights.landed
    too_late = pa.array(flights.arr_delay + 7, pa.int32())
    replaced = {
        **{name: choose(known_departure, columns[name]) for name in ("dep_ts", "cancelled", "dep_reports")},
        **{name: choose(landed, columns[name]) for name in ("diverted", "arr_reports")},
        "arr_delay": choose(flights.audited, too_late, columns["arr_delay"]),
    }
    return make_part(columns, ~flights.live, flights.month - 1, 0, replaced=replaced)


def _schedule(flights: Flights, columns: Columns) -> list[Part]:
    """Return first filings, corrections of swapped aircraft, copies, and flights that were filed and withdrawn.

    Args:
        flights: all flights.
        columns: columns of a correct report of each flight, by name.
    """
    rn, batch, live, swapped = flights.rn, flights.batch, flights.live, flights.swapped
    send = _Stream(flights, columns, 0)
    filed = choose(swapped, flights.tail_number_before(), columns["tailnum"])
    ghost = live & (flights.month == 12) & (hash_numbers(rn, 4) % 150 == 0)
    flight = pa.array(flights.column("flight").to_numpy() + _WITHDRAWN_FLIGHT, pa.int32())
    no_aircraft = pa.nulls(len(rn), pa.string())
    withdrawn = timestamps(flights.scheduled - 20 * HOUR)
    return [
        send(live, np.where(swapped & (hash_numbers(rn, 2) % 4 == 0), batch + 1, batch), 0, tailnum=filed),
        send(swapped, batch, 1, sched_ts=timestamps(flights.scheduled - 3 * HOUR)),
        send(live & select_percent(rn, 3, 2), batch + 1, 2, tailnum=filed),
        send(ghost, batch, 3, flight=flight, tailnum=no_aircraft),
        send(ghost, batch + 1, 4, "-D", flight=flight, tailnum=no_aircraft, sched_ts=withdrawn),
    ]


def _departures(flights: Flights, columns: Columns) -> list[Part]:
    """Return one report per flight with corrections: wrong delays, cancelled flights reported as departed, copies.

    Args:
        flights: all flights.
        columns: columns of a correct report of each flight, by name.
    """
    rn, batch, fixed, false = flights.rn, flights.batch, flights.departure_fixed, flights.falsely_departed
    send = _Stream(flights, columns, 1)
    correction_first = hash_numbers(rn, 11) % 2 == 1
    wrong = pa.array(flights.wrong_dep_delay, pa.int32())
    right = timestamps(flights.departure + 90 * MINUTE)
    on_time = {
        "dep_ts": timestamps(flights.scheduled),
        "dep_time": columns["sched_dep_time"],
        "dep_delay": pa.array(np.zeros(len(rn), np.int32)),
        "cancelled": pa.array(np.zeros(len(rn), np.bool_)),
    }
    first_step = np.where(false & correction_first, 1, 0)
    first = choose(fixed, wrong, columns["dep_delay"])
    return [
        send(flights.live, flights.departure_batch, first_step, dep_delay=first),
        send(fixed, batch, 1, dep_ts=right),
        send(false, batch, np.where(correction_first, 0, 1), **on_time),
        send(flights.live & select_percent(rn, 12, 3), batch + 1, 2, dep_ts=choose(fixed, right, columns["dep_ts"])),
        send(flights.blizzard, np.full(len(rn), _BLIZZARD_BATCH), 0),
    ]


def _arrivals(flights: Flights, columns: Columns) -> list[Part]:
    """Return one report per landed flight; some are corrected in the next batch, and an audit corrects September.

    Args:
        flights: all flights.
        columns: columns of a correct report of each flight, by name.
    """
    rn, batch, fixed, landed = flights.rn, flights.batch, flights.arrival_fixed, flights.live & flights.landed
    send = _Stream(flights, columns, 2)
    wrong = choose(fixed, pa.array(flights.wrong_arr_delay, pa.int32()), columns["arr_delay"])
    right = timestamps(flights.arrival + 2 * HOUR)
    return [
        send(landed, flights.arrival_batch, 0, arr_delay=wrong),
        send(fixed, batch + 1, 1, arr_ts=right),
        send(landed & select_percent(rn, 15, 3), batch + 1, 2, arr_ts=choose(fixed, right, columns["arr_ts"])),
        send(flights.audited, np.full(len(rn), _AUDIT_BATCH), 0, arr_ts=timestamps(flights.arrival + 30 * DAY)),
    ]
