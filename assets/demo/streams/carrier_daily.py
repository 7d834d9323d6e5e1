"""Figures of each carrier and day: one event per flight; wrong figures are retracted and sent again."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dredge.assets.demo.events import Part, arrange, make_part
from dredge.assets.demo.source import Integers
from dredge.assets.demo.streams.flights import Flags, Flights, all_flights, choose

SCHEMA = pa.schema(
    [
        pa.field("flight_date", pa.date32(), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        *[(name, pa.int64()) for name in ("flights", "cancelled", "arrived", "arr_delay_total")],
        ("distance_km", pa.decimal128(18, 6)),
        *[("worst_arr_delay", pa.int32()), ("best_arr_delay", pa.int32())],
        *[("last_tailnum", pa.string()), ("diverted_flights", pa.string())],
        ("origins", pa.list_(pa.string())),
        ("any_cancelled", pa.bool_()),
    ]
)
_FUNCTIONS: Final = {
    "worst_arr_delay": "max",
    "best_arr_delay": "min",
    "last_tailnum": "last_non_null_value",
    "diverted_flights": "listagg",
    "origins": "collect",
    "any_cancelled": "bool_or",
}
OPTIONS: Final = {
    "bucket": "1",
    "num-sorted-run.compaction-trigger": "8",
    "compaction.total-size-threshold": "4mb",
    "merge-engine": "aggregation",
    "changelog-producer": "lookup",
    "fields.default-aggregate-function": "sum",
    **{f"fields.{name}.aggregate-function": function for name, function in _FUNCTIONS.items()},
    **{f"fields.{name}.ignore-retract": "true" for name in _FUNCTIONS if name != "last_tailnum"},
    "fields.diverted_flights.list-agg-delimiter": ";",
    "fields.origins.distinct": "true",
}
SENT_TWICE: Final = frozenset({15})
"""Commits that a writer submits a second time with the same identifier, like a retry."""
_MILE: Final = Decimal("1.609344")
_AUDIT_COMMIT: Final = 12


def events() -> pa.Table:
    """Return all events in order: `_commit`, `_ord`, `_kind`, then SCHEMA."""
    flights = all_flights()
    columns = _columns(flights)
    no_text = pa.nulls(len(flights.rn), pa.string())
    fixed, audited = flights.arrival_fixed, flights.audited
    right, wrong, before_audit = flights.arr_delay, flights.wrong_arr_delay, flights.arr_delay + 7
    first = np.where(fixed, wrong, np.where(audited, before_audit, right))
    arrived = 9 + np.where(flights.landed, flights.arrival_batch, flights.batch)
    commit = np.where(flights.live, arrived, flights.month - 1)

    def event(selected: Flags, commit: Integers, step: int, kind: str, delay: Integers) -> Part:
        replaced = _delays(delay, flights.delay_known)
        if step:
            replaced["diverted_flights"] = no_text
        return make_part(columns, selected, commit, step, kind, replaced)

    correction, audit = 9 + flights.clipped(flights.batch + 1), np.full(len(flights.rn), _AUDIT_COMMIT)
    return arrange(
        [
            event(np.ones(len(flights.rn), np.bool_), commit, 0, "+I", first),
            event(fixed, correction, 1, "-U", wrong),
            event(fixed, correction, 2, "+U", right),
            event(audited, audit, 1, "-U", before_audit),
            event(audited, audit, 2, "+U", right),
        ],
        SCHEMA,
    )


def _delays(delay: Integers, known_delay: Flags) -> dict[str, pa.Array]:
    """Return the three columns that are computed from the arrival delay, by name.

    Args:
        delay: arrival delay of each flight (minutes).
        known_delay: mask of the flights with a known delay; the values of other flights are null.
    """
    values = pa.array(delay, pa.int64(), mask=~known_delay)
    return dict.fromkeys(("arr_delay_total", "worst_arr_delay", "best_arr_delay"), values)


def _columns(flights: Flights) -> dict[str, pa.Array]:
    """Return the columns of one event per flight, by name, with the correct arrival delay of the flight.

    Some flights are first sent with a wrong delay: `events` replaces the columns of the delay in their events.
    """
    count = len(flights.rn)
    miles = flights.column("distance").cast(pa.decimal128(10, 0))
    number = pc.binary_join_element_wise(flights.column("flight").cast(pa.string()), flights.column("origin"), "/")
    offsets = pa.array(np.arange(count + 1, dtype=np.int32))
    return {
        "flight_date": pa.array(flights.dates),
        "carrier": flights.column("carrier"),
        "flights": pa.array(np.ones(count, np.int64)),
        "cancelled": pa.array(flights.cancelled.astype(np.int64)),
        "arrived": pa.array(flights.delay_known.astype(np.int64)),
        "distance_km": choose(~flights.cancelled, pc.multiply(miles, pa.scalar(_MILE)).cast(pa.decimal128(18, 6))),
        "last_tailnum": flights.column("tailnum"),
        "diverted_flights": choose(flights.diverted, number),
        "origins": pa.ListArray.from_arrays(offsets, flights.column("origin")),
        "any_cancelled": pa.array(flights.cancelled),
        **_delays(flights.arr_delay, flights.delay_known),
    }
