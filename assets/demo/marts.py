"""Three marts over the demo's tables: questions about flights, answered by reading the tables like any user.

They depend on the tables' data assets, so commits of writers make them stale and compactions do not.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from dredge.assets.demo import source
from dredge.assets.demo.tables import (
    AIRCRAFT_FIRST_SEEN,
    CARRIER_DAILY,
    DATABASE,
    FLIGHT_STATUS,
    PLANES,
    WEATHER,
    DemoTable,
)
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import resolve_annotations
from dredge.platform_core.resources.warehouse import WarehouseResource
from lsm_core import Catalog

JOB: Final = "marts"
ROWS: Final = "rows"
"""Label of the metadata with a mart's rows by question, as JSON."""
IMPOSSIBLE_WIND: Final = 250
"""Miles per hour, above any value ever measured by a station."""
_LIVE_FROM: Final = "2013-10"
_DECEMBER: Final = "2013-12"
_JULY: Final = (datetime.date(2013, 7, 1), datetime.date(2013, 8, 1))
_EXPECTED: Final = Path(__file__).parent / "reference" / "expected.json"

Rows = list[list[Any]]


@dataclass(frozen=True)
class MartAnswer:
    """Answer to one question.

    Attributes:
        question: the question in the scenario's words.
        columns: titles of the columns.
        rows: rows of the answer, one list of values per row.
    """

    question: str
    columns: Sequence[str]
    rows: Rows

    def markdown(self) -> str:
        """Return the answer as Markdown: the question in bold, and a table of the rows."""
        lines = [f"**{self.question}**", "", f"| {' | '.join(self.columns)} |", f"|{'---|' * len(self.columns)}"]
        return "\n".join(lines + [f"| {' | '.join(f'{value}' for value in row)} |" for row in self.rows])


@dataclass(frozen=True)
class Mart:
    """One mart.

    Attributes:
        name: name of the mart.
        about: description of the mart.
        tables: tables that the mart reads.
        answers: function that computes the answers from the catalog.
    """

    name: str
    about: str
    tables: tuple[DemoTable, ...]
    answers: Callable[[Catalog], list[MartAnswer]]

    @property
    def key(self) -> dg.AssetKey:
        """Asset key `marts/<name>`."""
        return dg.AssetKey(["marts", self.name])


def _read(catalog: Catalog, table: DemoTable, *columns: str) -> pa.Table:
    return catalog.table(table.identifier).to_arrow(columns=list(columns))


def _carrier_punctuality(catalog: Catalog) -> list[MartAnswer]:
    rows = _read(catalog, CARRIER_DAILY, "flight_date", "carrier", "flights", "cancelled", "arrived", "arr_delay_total")
    first, after = (pa.scalar(day) for day in _JULY)
    days = rows.column("flight_date")
    july = rows.filter(pc.and_(pc.greater_equal(days, first), pc.less(days, after)))
    carriers = july.group_by("carrier").aggregate([("arr_delay_total", "sum"), ("arrived", "sum")])
    mean = pc.divide(carriers.column("arr_delay_total_sum").cast(pa.float64()), carriers.column("arrived_sum"))
    worst = carriers.append_column("mean", mean).sort_by([("mean", "descending")]).slice(0, 5)
    names_by_carrier = source.airlines()
    delays = [
        [row["carrier"], names_by_carrier.get(row["carrier"], "?"), round(row["mean"], 2), row["arrived_sum"]]
        for row in worst.to_pylist()
    ]
    sums = rows.group_by("flight_date").aggregate([("cancelled", "sum"), ("flights", "sum")])
    stormy = sums.sort_by([("cancelled_sum", "descending"), ("flight_date", "ascending")]).slice(0, 3)
    return [
        MartAnswer(
            "mean arrival delay, minutes, worst five carriers, July 2013 (carrier_daily)",
            ("carrier", "name", "mean delay (min)", "arrivals"),
            delays,
        ),
        MartAnswer(
            "days with most cancellations (carrier_daily)",
            ("day", "cancelled", "flights"),
            [[row["flight_date"].isoformat(), row["cancelled_sum"], row["flights_sum"]] for row in stormy.to_pylist()],
        ),
    ]


def _delay_by_weather(catalog: Catalog) -> list[MartAnswer]:
    columns = ("flight_month", "origin", "sched_ts", "dep_delay", "cancelled", "diverted", "dep_reports")
    status = _read(catalog, FLIGHT_STATUS, *columns)
    months = status.column("flight_month")
    december = status.filter(pc.equal(months, _DECEMBER))
    counts = december.group_by("origin").aggregate(
        [([], "count_all"), ("cancelled", "sum"), ("diverted", "sum"), ("dep_delay", "mean")]
    )
    origins = [
        [
            row["origin"],
            row["count_all"],
            row["cancelled_sum"] or 0,
            row["diverted_sum"] or 0,
            round(row["dep_delay_mean"], 2),
        ]
        for row in counts.sort_by("origin").to_pylist()
    ]
    live = status.filter(pc.greater_equal(months, _LIVE_FROM))
    reports = pc.sum(live.column("dep_reports")).as_py() or 0
    reported = live.num_rows - live.column("dep_reports").null_count
    sky = _read(catalog, WEATHER, "origin", "time_hour", "precip", "wind_speed")
    # sched_ts is the filing time, one day before departure; an hour that a station sent twice counts once.
    due = pc.add(live.column("sched_ts"), pa.scalar(datetime.timedelta(days=1), pa.duration("ms")))
    due = pc.floor_temporal(due, unit="hour").cast(sky.schema.field("time_hour").type)
    flown = live.append_column("time_hour", due).filter(pc.is_valid(live.column("dep_delay")))
    hours = sky.group_by(["origin", "time_hour", "precip"]).aggregate([])
    matched = flown.select(["origin", "time_hour", "dep_delay"]).join(hours, ["origin", "time_hour"], join_type="inner")
    by_rain = matched.append_column("rain", pc.greater(matched.column("precip"), 0)).group_by("rain")
    rain = by_rain.aggregate([([], "count_all"), ("dep_delay", "mean")]).sort_by("rain")
    winds = sky.filter(pc.greater(sky.column("wind_speed"), IMPOSSIBLE_WIND))
    return [
        MartAnswer(
            "flights, cancelled, diverted, mean departure delay by origin, December 2013 (flight_status)",
            ("origin", "flights", "cancelled", "diverted", "mean delay (min)"),
            origins,
        ),
        MartAnswer(
            "departure reports received, flights reported, surplus (duplicates, false and corrected reports), Oct-Dec",
            ("reports", "flights", "surplus"),
            [[reports, live.num_rows, reports - reported]],
        ),
        MartAnswer(
            "mean departure delay when it rains or not at the airport, Oct-Dec (flight_status, weather)",
            ("rain", "flights", "mean delay (min)"),
            [[row["rain"], row["count_all"], round(row["dep_delay_mean"], 2)] for row in rain.to_pylist()],
        ),
        MartAnswer(
            "impossible wind speeds above 250 mph (weather, while February is still retained)",
            ("origin", "hour (UTC)", "mph"),
            [[row["origin"], f"{row['time_hour']:%F %T}", row["wind_speed"]] for row in winds.to_pylist()],
        ),
    ]


def _fleet(catalog: Catalog) -> list[MartAnswer]:
    seen = _read(catalog, AIRCRAFT_FIRST_SEEN, "tailnum", "seen_at")
    registered = seen.join(_read(catalog, PLANES, "tailnum"), "tailnum", join_type="inner").num_rows
    departures = AIRCRAFT_FIRST_SEEN.events().select(["tailnum", "seen_at"])
    earliest = departures.group_by("tailnum").aggregate([("seen_at", "min")])
    late = seen.join(earliest, "tailnum", join_type="inner")
    return [
        MartAnswer(
            "aircraft seen, and of those in the planes register (aircraft_first_seen, planes)",
            ("seen", "registered"),
            [[seen.num_rows, registered]],
        ),
        MartAnswer(
            "aircraft whose first row is not their earliest departure, because that one arrived late",
            ("aircraft",),
            [[pc.sum(pc.less(late.column("seen_at_min"), late.column("seen_at"))).as_py() or 0]],
        ),
    ]


FLEET: Final = Mart(
    "fleet", "The aircraft that flew, and what the register knows of them.", (AIRCRAFT_FIRST_SEEN, PLANES), _fleet
)
MARTS: Final = (
    Mart("carrier_punctuality", "Who is late, and when nothing flew.", (CARRIER_DAILY,), _carrier_punctuality),
    Mart(
        "delay_by_weather",
        "Delays by airport and by rain, and how many reports a flight needs.",
        (FLIGHT_STATUS, WEATHER),
        _delay_by_weather,
    ),
    FLEET,
)


def expected_answers() -> dict[str, Rows]:
    """Return the right rows by question, at the end of the demo before any expiry, from the demo's reference."""
    answers: dict[str, Rows] = json.loads(_EXPECTED.read_text())["business_answers"]
    return answers


def plain_rows(answer: MartAnswer) -> Rows:
    """Return the rows without the carriers' names, which the reference omits."""
    if "name" not in answer.columns:
        return answer.rows
    position = list(answer.columns).index("name")
    return [[*row[:position], *row[position + 1 :]] for row in answer.rows]


def mart_definitions(warehouse_path: str, source_key: dg.AssetKey) -> dg.Definitions:
    """Return the marts as assets, and the job that materialises all of them.

    Args:
        warehouse_path: location of the warehouse.
        source_key: asset key of the source files of the demo.
    """
    assets = [_asset(mart, warehouse_path, source_key) for mart in MARTS]
    job = dg.define_asset_job(
        JOB,
        selection=dg.AssetSelection.assets(*(mart.key for mart in MARTS)),
        description="Answer questions about flights from the current tables.",
        tags={names.TAG_ACTION: JOB},
        executor_def=dg.in_process_executor,
    )
    return dg.Definitions(assets=assets, jobs=[job])


def _asset(mart: Mart, warehouse_path: str, source_key: dg.AssetKey) -> dg.AssetsDefinition:
    data = [names.WarehouseNames.of(warehouse_path).data_key(table.identifier) for table in mart.tables]

    @dg.asset(
        key=mart.key,
        deps=[*data, source_key],
        description=mart.about,
        group_name=DATABASE,
        owners=[names.OWNER],
        kinds={"arrow"},
    )
    @resolve_annotations
    def mart_answers(warehouse: WarehouseResource) -> dg.MaterializeResult:  # type: ignore[type-arg]
        answers = mart.answers(warehouse.catalog())
        return dg.MaterializeResult(
            metadata={
                "answers": dg.MetadataValue.md("\n\n".join(answer.markdown() for answer in answers)),
                ROWS: dg.MetadataValue.json({answer.question: plain_rows(answer) for answer in answers}),
            }
        )

    return mart_answers
