"""First sightings of aircraft: each departure is an event. The row of the first event to arrive stays, even if late."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from dredge.assets.demo.events import Part, arrange
from dredge.assets.demo.streams.flights import all_flights, timestamps

SCHEMA = pa.schema(
    [
        pa.field("tailnum", pa.string(), nullable=False),
        ("first_date", pa.date32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        *[("origin", pa.string()), ("dest", pa.string())],
        ("seen_at", pa.timestamp("ms")),
    ]
)
OPTIONS: Final = {"bucket": "1", "merge-engine": "first-row"}


def events() -> pa.Table:
    """Return all departures in order of commit, departure time and row: `_commit`, `_ord`, `_kind`, then SCHEMA."""
    flights = all_flights()
    departed = np.flatnonzero(~flights.cancelled)
    commit = np.where(flights.live, 9 + flights.departure_batch, flights.month - 1)
    table = {name: flights.column(name) for name in ("tailnum", "carrier", "flight", "origin", "dest")}
    table["first_date"], table["seen_at"] = pa.array(flights.dates), timestamps(flights.departure)
    # `arrange` sorts by row number: the place in order of time, then row, gives the scenario's order.
    position = np.empty(len(departed), np.int64)
    position[np.argsort(flights.departure[departed], kind="stable")] = np.arange(len(departed))
    picked = {name: column.take(pa.array(departed)) for name, column in table.items()}
    return arrange([Part(position, commit[departed], np.zeros(len(departed), np.int64), "+I", picked)], SCHEMA)
