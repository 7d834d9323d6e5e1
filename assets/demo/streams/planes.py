"""Aircraft register: corrected years, withdrawn aircraft, and re-registrations whose delete arrives too late."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dredge.assets.demo import source
from dredge.assets.demo.events import Part, arrange, hash_numbers, make_part, select_percent

Flags = npt.NDArray[np.bool_]
SCHEMA = pa.schema(
    [
        pa.field("tailnum", pa.string(), nullable=False),
        ("revision", pa.int32()),
        ("year", pa.int32()),
        ("type", pa.string()),
        ("manufacturer", pa.string()),
        ("model", pa.string()),
        ("engines", pa.int32()),
        ("seats", pa.int32()),
        ("speed", pa.int32()),
        ("engine", pa.string()),
    ]
)
_RETIRED_BEFORE = np.datetime64("2013-09-01", "D")


def _retired(tail_numbers: pa.Array) -> Flags:
    """Return a mask of the aircraft whose last flight was before September."""
    flown = source.flights()
    days = pa.table({"tailnum": flown["tailnum"], "day": pa.array(source.local_dates(flown))})
    last = days.group_by("tailnum").aggregate([("day", "max")])
    retired_aircraft = last.filter(pc.less(last["day_max"], pa.scalar(_RETIRED_BEFORE.astype(object), pa.date32())))
    is_retired = pc.is_in(tail_numbers, value_set=retired_aircraft["tailnum"].combine_chunks())
    return np.asarray(is_retired.to_numpy(zero_copy_only=False))


def events() -> pa.Table:
    """Return all changes of the register in order: `_commit`, `_ord`, `_kind`, then SCHEMA."""
    register = source.planes()
    n = register["rn"].to_numpy()
    table = {name: register[name].combine_chunks() for name in SCHEMA.names if name != "revision"}
    table["revision"] = pa.nulls(len(n), pa.int32())
    refiled = pc.is_valid(table["year"]).to_numpy(zero_copy_only=False) & select_percent(n, 20, 1, of=10)
    retired = _retired(table["tailnum"])
    reregistered = retired & (hash_numbers(n, 24) % 4 == 0)
    early = refiled & (hash_numbers(n, 21) % 2 == 0)
    late = refiled & (hash_numbers(n, 21) % 2 == 1)
    first_year = pc.if_else(pa.array(refiled), pa.scalar(None, pa.int32()), table["year"])
    everything = np.ones(len(n), np.bool_)

    def event(commit: int, kind: str, revision: int, selected: Flags, *, as_first_filed: bool = False) -> Part:
        replaced = {"revision": pa.array(np.full(len(n), revision, np.int32))}
        if as_first_filed:
            replaced["year"] = first_year
        # Two revisions of one aircraft in one commit are ordered by revision.
        return make_part(table, selected, np.full(len(n), commit), revision, kind, replaced)

    return arrange(
        [
            event(0, "+I", 1, everything, as_first_filed=True),
            event(1, "+I", 2, early),
            event(1, "+I", 1, select_percent(n, 22, 1, of=50) & ~early, as_first_filed=True),
            event(2, "+I", 2, late),
            event(2, "-D", 3, retired & ~reregistered),
            event(2, "+I", 4, reregistered),
            event(3, "-D", 3, reregistered),
            event(3, "+I", 1, ~retired & select_percent(n, 23, 1, of=25), as_first_filed=True),
        ],
        SCHEMA,
    )
