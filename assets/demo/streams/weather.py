"""Hourly weather of three stations; one station's batch is sent twice, and an append-only table keeps both copies."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa

from dredge.assets.demo import source
from dredge.assets.demo.events import Part, arrange

SCHEMA = pa.schema(
    [
        pa.field("obs_month", pa.string(), nullable=False),
        ("origin", pa.string()),
        ("time_hour", pa.timestamp("ms")),
        *[(name, pa.float64()) for name in ("temp", "dewp", "humid")],
        ("wind_dir", pa.int32()),
        *[(name, pa.float64()) for name in ("wind_speed", "wind_gust", "precip", "pressure", "visib")],
    ]
)
STATIONS = ("EWR", "JFK", "LGA")
REPEATED_COMMIT, REPEATED_STATION = 9 + 7, "LGA"


def events() -> pa.Table:
    """Return all observations: `_commit`, `_ord`, `_kind`, then the columns of SCHEMA.

    They are sorted by commit. Within a commit, the repeated copy of a batch is last, stations are in the order of
    STATIONS, and the rows of a station in file order.
    """
    observed = source.weather()
    dates = source.local_dates(observed)
    month = observed["month"].to_numpy().astype(np.int64)
    commit = np.where(month <= 9, month - 1, 9 + source.batches(dates))
    columns = {
        "obs_month": source.months_text(dates),
        "time_hour": observed["time_hour"].combine_chunks().cast(pa.timestamp("s")).cast(pa.timestamp("ms")),
        "wind_dir": observed["wind_dir"].combine_chunks().cast(pa.int32()),
    }
    plain = {name: observed[name].combine_chunks() for name in SCHEMA.names if name not in columns}
    table = {name: columns[name] if name in columns else plain[name] for name in SCHEMA.names}
    station = observed["origin"].to_numpy(zero_copy_only=False).astype(str)
    rank = np.searchsorted(np.array(STATIONS), station)
    repeated = np.flatnonzero((commit == REPEATED_COMMIT) & (station == REPEATED_STATION))
    rows = np.arange(len(commit))

    def batch_part(selected: source.Integers, copy: int) -> Part:
        # `arrange` sorts by row number: a number made of (copy, station, row) gives the scenario's order.
        position = (np.int64(copy) << 40) | (rank[selected].astype(np.int64) << 32) | rows[selected]
        picked = {name: column.take(pa.array(selected)) for name, column in table.items()}
        return Part(position, commit[selected], np.zeros(len(selected), np.int64), "+I", picked)

    return arrange([batch_part(rows, 0), batch_part(repeated, 1)], SCHEMA)


def writers_of(rows: pa.Table) -> list[pa.Table]:
    """Return one table per writer, in order: each station sends its own file; a repeated batch has a fourth writer."""
    station = rows["origin"].to_numpy(zero_copy_only=False).astype(str)
    borders = np.flatnonzero(station[1:] != station[:-1]) + 1
    # The repeated LGA rows follow the first LGA rows: a key seen before starts the fourth writer.
    seen = rows["time_hour"].cast(pa.int64()).to_numpy()
    falls = np.flatnonzero((np.diff(seen) < 0) & (station[1:] == station[:-1])) + 1
    cuts = [0, *sorted({*borders.tolist(), *falls.tolist()}), rows.num_rows]
    return [rows.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
