"""The aircraft register: refiled years, withdrawn aircraft, re-registrations whose delete arrives too late."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from assets.demo import source
from assets.demo.events import Part, arranged, mix, part, percent

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
_GONE_BEFORE = np.datetime64("2013-09-01", "D")


def _gone(tail_numbers: pa.Array) -> Flags:
    """Aircraft whose last flight was before September."""
    flown = source.flights()
    days = pa.table({"tailnum": flown["tailnum"], "day": pa.array(source.local_dates(flown))})
    last = days.group_by("tailnum").aggregate([("day", "max")])
    retired = last.filter(pc.less(last["day_max"], pa.scalar(_GONE_BEFORE.astype(object), pa.date32())))
    gone = pc.is_in(tail_numbers, value_set=retired["tailnum"].combine_chunks())
    return np.asarray(gone.to_numpy(zero_copy_only=False))


def events() -> pa.Table:
    """Every change of the register in order: `_commit`, `_ord`, `_kind`, then SCHEMA."""
    register = source.planes()
    n = register["rn"].to_numpy()
    table = {name: register[name].combine_chunks() for name in SCHEMA.names if name != "revision"}
    table["revision"] = pa.nulls(len(n), pa.int32())
    refiled = pc.is_valid(table["year"]).to_numpy(zero_copy_only=False) & percent(n, 20, 1, of=10)
    gone = _gone(table["tailnum"])
    back = gone & (mix(n, 24) % 4 == 0)
    early = refiled & (mix(n, 21) % 2 == 0)
    late = refiled & (mix(n, 21) % 2 == 1)
    first_year = pc.if_else(pa.array(refiled), pa.scalar(None, pa.int32()), table["year"])
    everything = np.ones(len(n), np.bool_)

    def event(commit: int, kind: str, revision: int, chosen: Flags, *, as_first_filed: bool = False) -> Part:
        replaced = {"revision": pa.array(np.full(len(n), revision, np.int32))}
        if as_first_filed:
            replaced["year"] = first_year
        # Two revisions of one aircraft in one commit are ordered by revision.
        return part(table, chosen, np.full(len(n), commit), revision, kind, replaced)

    return arranged(
        [
            event(0, "+I", 1, everything, as_first_filed=True),
            event(1, "+I", 2, early),
            event(1, "+I", 1, percent(n, 22, 1, of=50) & ~early, as_first_filed=True),
            event(2, "+I", 2, late),
            event(2, "-D", 3, gone & ~back),
            event(2, "+I", 4, back),
            event(3, "-D", 3, back),
            event(3, "+I", 1, ~gone & percent(n, 23, 1, of=25), as_first_filed=True),
        ],
        SCHEMA,
    )
