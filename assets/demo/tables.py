"""The demo's tables: schema, keys, options, and how many commits have arrived by each live batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from dredge.assets.demo.streams import aircraft_first_seen, carrier_daily, flight_status, planes, weather
from lsm_core.options import TableOptions

DATABASE: Final = "nyc"
_COMMON: Final = {"snapshot.num-retained.min": "20", "snapshot.num-retained.max": "20"}
_WRITE_ONLY: Final = {"write-only": "true"}
"""Options of tables whose writers neither compact nor expire, so that the platform has work."""
_COMPACTED_BY_WRITERS: Final = {"dredge.compaction.inline": "follow"}
"""Options of a table whose writers compact and expire it, even if the environment switches that off."""


@dataclass(frozen=True, eq=False)
class DemoTable:
    """One table of the scenario and the function that makes its events.

    Attributes:
        name: name of the table.
        schema: Arrow schema of its rows.
        events: function that returns all events of the table.
        writers: function that splits the rows of a commit into one table per writer.
        about: description for people.
        primary_keys: key columns.
        partition_keys: partition columns.
        options: the table's own options.
        sent_twice: numbers of commits that are submitted a second time, unchanged.
    """

    name: str
    schema: pa.Schema
    events: Callable[[], pa.Table]
    writers: Callable[[pa.Table], list[pa.Table]]
    about: str
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    sent_twice: frozenset[int] = frozenset()
    writers_compact_it: bool = False
    """Whether writers compact and expire the table. Otherwise only the platform does."""

    @property
    def identifier(self) -> str:
        """Full name of the table: `database.table`."""
        return f"{DATABASE}.{self.name}"

    @property
    def all_options(self) -> dict[str, str]:
        """Options of the table, including those of all demo tables."""
        upkeep = _COMPACTED_BY_WRITERS if self.writers_compact_it else _WRITE_ONLY
        return {**_COMMON, **upkeep, **self.options}

    @property
    def hides_level0(self) -> bool:
        """Whether rows are invisible until they are compacted."""
        return self.options.get("merge-engine") == "first-row"

    @property
    def compaction_trigger(self) -> int:
        """Number of sorted runs in a bucket from which the table's own rules require a compaction."""
        return TableOptions(self.all_options, self.identifier).compaction_trigger

    @property
    def buckets(self) -> int:
        """Number of fixed buckets, or -1 if buckets are not fixed."""
        return int(self.all_options["bucket"])


def _one_writer(rows: pa.Table) -> list[pa.Table]:
    return [rows]


FLIGHT_STATUS: Final = DemoTable(
    "flight_status",
    flight_status.SCHEMA,
    flight_status.events,
    _one_writer,
    "Every flight as three agencies report it; each report fills its own columns, the newest of its kind wins, late "
    "ones included.",
    ("flight_month", "flight_date", "carrier", "flight", "origin"),
    ("flight_month",),
    flight_status.OPTIONS,
)
CARRIER_DAILY: Final = DemoTable(
    "carrier_daily",
    carrier_daily.SCHEMA,
    carrier_daily.events,
    _one_writer,
    "Figures of each carrier and day, summed from one event per flight; wrong figures are taken back and sent again.",
    ("flight_date", "carrier"),
    (),
    carrier_daily.OPTIONS,
    carrier_daily.SENT_TWICE,
)
AIRCRAFT_FIRST_SEEN: Final = DemoTable(
    "aircraft_first_seen",
    aircraft_first_seen.SCHEMA,
    aircraft_first_seen.events,
    _one_writer,
    "The first departure of each aircraft that was reported; the first row stays, and nothing shows before it is "
    "compacted.",
    ("tailnum",),
    (),
    aircraft_first_seen.OPTIONS,
)
PLANES: Final = DemoTable(
    "planes",
    planes.SCHEMA,
    planes.events,
    _one_writer,
    "The aircraft register; the highest revision wins, withdrawn aircraft are deleted. The one table of the demo that "
    "looks after itself: "
    "its writers compact it when the fifth sorted run arrives, and expire its snapshots.",
    ("tailnum",),
    (),
    {"bucket": "1", "sequence.field": "revision"},
    writers_compact_it=True,
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
TABLES: Final = (FLIGHT_STATUS, CARRIER_DAILY, AIRCRAFT_FIRST_SEEN, PLANES, WEATHER)
