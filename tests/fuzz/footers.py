"""Child process that reads Parquet files with one flipped bit in their footers, in every way in which a file is read.

``python -m tests.fuzz.footers FIRST STEP`` flips every STEP-th bit from FIRST. Each bit is printed before the read, so
that the parent knows the bit that ended the process. At the end, one JSON object has the number of each outcome.
"""

from __future__ import annotations

import datetime
import io
import json
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files.formats import open_source
from lsm_core.storage import LocalFileIO

NAME = "flipped.parquet"
_ADDRESS_SPACE = 4 << 30


class _OneFile(LocalFileIO):
    """FileIO that returns the bytes `data` for every path."""

    data = b""

    def open_input(self, path: str) -> Any:
        del path
        return pa.BufferReader(self.data)


def samples() -> Iterator[tuple[str, bytes]]:
    """Yield name and content of Parquet files: all types, nested types, row groups, encodings, bloom filters, ..."""
    count = 6
    flat = pa.table(
        {
            "yes": pa.array([True, None] * 3),
            "tiny": pa.array(range(count), pa.int8()),
            "small": pa.array(range(count), pa.int16()),
            "int": pa.array(range(count), pa.int32()),
            "long": pa.array(range(count), pa.int64()),
            "float": pa.array([1.5] * count, pa.float32()),
            "double": pa.array([2.5] * count),
            "text": ["a", "bb", None, "a", "a", "a"],
            "bytes": pa.array([b"x"] * count),
            "date": pa.array([datetime.date(2024, 1, 1)] * count),
            "time": pa.array(range(count), pa.time32("ms")),
            "at": pa.array(range(count), pa.timestamp("us")),
            "utc": pa.array(range(count), pa.timestamp("ms", "UTC")),
            "money": pa.array([Decimal("1.25")] * count, pa.decimal128(5, 2)),
            "more": pa.array([Decimal("1.25")] * count, pa.decimal128(15, 2)),
            "most": pa.array([Decimal("1.25")] * count, pa.decimal128(30, 2)),
        }
    )
    nested = pa.table(
        {
            "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
            "map": pa.array([[("a", {"p": "x"})], None, []], pa.map_(pa.string(), pa.struct([("p", pa.string())]))),
            "row": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": None}]),
        }
    )
    wide = pa.table({"k": pa.array(range(4), pa.int64()), "at": pa.array(range(4), pa.timestamp("ns"))})
    encodings = {"long": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY", "double": "BYTE_STREAM_SPLIT"}
    few = {"use_dictionary": False, "store_schema": False}
    yield "all types", _file(flat, store_schema=False, store_decimal_as_integer=True)
    yield (
        "row groups",
        _file(
            flat.select(["long", "text", "most"]), **few, write_page_index=True, compression="zstd", row_group_size=3
        ),
    )
    yield "nested", _file(nested, store_schema=False)
    yield "Arrow's schema", _file(flat.select(["text", "at", "most"]))
    yield (
        "second version",
        _file(
            flat.select(["text", "long", "double"]), **few, data_page_version="2.0", compression="gzip",
            column_encoding=encodings, write_page_checksum=True,
        ),
    )  # fmt: skip
    yield "INT96", _file(wide, use_deprecated_int96_timestamps=True, store_schema=False)
    yield "bloom filters", _file(flat.select(["long", "text"]), store_schema=False, bloom_filter_options={"text": True})


def _file(table: pa.Table, **settings: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **settings)
    return out.getvalue()


def _read(files: _OneFile) -> pa.Table:
    """Read the footer and all rows: whole, by row group and as dictionaries; return the rows."""
    source = open_source(files, f"/nowhere/{NAME}", table="db.t")
    names = source.schema.names
    for name in names:
        source.group_bounds(name)
    source.value_bytes(names)
    texts = source.repeating_texts(names)
    whole = pa.Table.from_batches(source.batches(names, 4), source.schema)
    parts = [batch for group in range(len(source.group_rows)) for batch in source.batches(names, 4, [group])]
    assert pa.Table.from_batches(parts, source.schema).equals(whole)
    for batch in source.batches(names, 4, dictionaries=texts) if texts else ():
        batch.validate(full=True)
    source.close()
    return whole


def main(first: int, step: int) -> None:
    """Flip bits, read the files, and print the outcomes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    files, outcomes, findings = _OneFile(), Counter[str](), []
    for name, data in samples():
        files.data = data
        right = _read(files)
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        for bit in range(8 * start + first, 8 * len(data), step):
            print(json.dumps([name, bit]), flush=True)
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            files.data = bytes(flipped)
            try:
                found = _read(files)
            except (CorruptFile, UnsupportedFeature) as error:
                outcome = "refused" if NAME in str(error) else f"does not name the file: {error}"
            except Exception as error:  # what else escapes is what is looked for
                outcome = repr(error)
            else:
                # Names and logical types are what a footer says they are: nothing else in the file tells them.
                same = found.schema.equals(right.schema)
                outcome = "other columns" if not same else "right rows" if found.equals(right) else "other rows"
            outcomes[outcome] += 1
            if outcome not in ("refused", "right rows", "other columns"):
                findings.append((name, bit, outcome))
    print(json.dumps({"outcomes": outcomes, "findings": findings}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
