"""The demo's tables: schema, keys, options, and how many commits have arrived by each live batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from assets.demo import departures, planes, weather

DATABASE: Final = "nyc"
_COMMON: Final = {"write-only": "true", "snapshot.num-retained.min": "20", "snapshot.num-retained.max": "20"}


@dataclass(frozen=True)
class DemoTable:
    """One table of the scenario and the function that makes its events."""

    name: str
    schema: pa.Schema
    events: Callable[[], pa.Table]
    writers: Callable[[pa.Table], list[pa.Table]]
    about: str
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def identifier(self) -> str:
        """`database.table`."""
        return f"{DATABASE}.{self.name}"

    @property
    def all_options(self) -> dict[str, str]:
        """The table's own options with those that every table of the demo has."""
        return {**_COMMON, **self.options}


def _one_writer(rows: pa.Table) -> list[pa.Table]:
    return [rows]


DEPARTURES: Final = DemoTable(
    "departures",
    departures.SCHEMA,
    departures.events,
    _one_writer,
    "Departure reports of every flight; the newest report by dep_ts wins, late and repeated ones included.",
    ("flight_month", "flight_date", "carrier", "flight", "origin"),
    ("flight_month",),
    {"bucket": "2", "sequence.field": "dep_ts"},
)
PLANES: Final = DemoTable(
    "planes",
    planes.SCHEMA,
    planes.events,
    _one_writer,
    "The aircraft register; the highest revision wins, withdrawn aircraft are deleted.",
    ("tailnum",),
    (),
    {"bucket": "1", "sequence.field": "revision"},
)
WEATHER: Final = DemoTable(
    "weather",
    weather.SCHEMA,
    weather.events,
    weather.writers_of,
    "Hourly weather at the three airports, append-only: what was sent twice is there twice.",
    (),
    ("obs_month",),
    {
        "bucket": "-1",
        "partition.expiration-time": "285 d",
        "partition.timestamp-pattern": "$obs_month-01",
        "partition.timestamp-formatter": "yyyy-MM-dd",
    },
)
TABLES: Final = (DEPARTURES, PLANES, WEATHER)
