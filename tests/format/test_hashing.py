"""Buckets: rows go where Java puts them, whatever the block they travel in."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lsm_core.format
from lsm_core.errors import InvalidOption
from lsm_core.format.binary_row import encode_row, encode_rows
from lsm_core.format.hashing import bucket_of, hash_rows, hive_hash
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.types import parse, to_arrow
from tests.format import reference
from tests.format.strategies import SIMPLE_TYPES, tables
from tests.format.test_binary_row import columns_of
from tests.support.samples import examples


@settings(max_examples=examples(60))
@given(tables(SIMPLE_TYPES), st.integers(1, 300))
def test_buckets_are_javas_remainder_of_the_reference_hash(case: Any, buckets: int) -> None:
    kinds, rows = case
    expected = [abs(int(np.fmod(reference.murmur(reference.row(row, kinds)), buckets))) for row in rows]
    assert bucket_of(columns_of(kinds, rows), kinds, buckets).tolist() == expected


@pytest.mark.parametrize("kinds", [["BIGINT"], ["INT", "BIGINT"], ["STRING", "INT"], ["STRING", "DECIMAL(30, 2)"]])
def test_blocks_do_not_change_hashes(kinds: list[str]) -> None:
    count = 40_000
    rng = np.random.default_rng(7)
    made = {
        "BIGINT": pa.array(rng.integers(-(2**60), 2**60, count), mask=rng.random(count) < 0.01),
        "INT": pa.array(rng.integers(0, 9, count).astype(np.int32)),
        "STRING": pa.array(["é" * int(n) for n in rng.integers(0, 20, count)], mask=rng.random(count) < 0.01),
        "DECIMAL(30, 2)": pa.array(rng.integers(-(2**40), 2**40, count)).cast(pa.decimal128(30, 2)),
    }
    types = [parse(kind) for kind in kinds]
    cols = [made[kind] for kind in kinds]
    blobs = encode_rows(cols, types, with_arity=False)
    picked = rng.integers(0, count, 300)
    hashes = hash_rows(cols, types)
    assert [int(hashes[i]) for i in picked] == [reference.murmur(blobs[int(i)].as_py()) for i in picked]
    assert hash_rows([c.slice(12_345, 77) for c in cols], types).tolist() == hashes[12_345 : 12_345 + 77].tolist()


def test_int_and_bigint_hash_alike_but_timestamps_of_other_precision_do_not() -> None:
    first = pa.array([1])
    assert hash_rows([first], [parse("INT")]).tolist() == hash_rows([first], [parse("BIGINT")]).tolist()
    moment = pa.array([1], pa.timestamp("ms"))
    assert hash_rows([moment], [parse("TIMESTAMP(3)")]) != hash_rows([moment], [parse("TIMESTAMP(6)")])


def test_the_row_kind_is_never_in_a_key() -> None:
    assert encode_row([1], [parse("INT")])[4] == 0


def test_hive_hash_of_edges() -> None:
    assert hive_hash([pa.array([-0.0, 0.0])], [parse("DOUBLE")]).tolist() == [0, 0]
    assert hive_hash([pa.array([Decimal("0.00"), None])], [parse("DECIMAL(4, 2)")])[0] == 0
    negative = hive_hash([pa.array([Decimal("-12.34")], pa.decimal128(10, 4))], [parse("DECIMAL(10, 4)")])
    assert negative.tolist() == [31 * -1234 + 2]
    with pytest.raises(InvalidOption, match="DATE"):
        hive_hash([pa.array([0], pa.int32()).view(pa.date32())], [parse("DATE")])


def test_an_unknown_function_is_named() -> None:
    with pytest.raises(InvalidOption, match=r"bucket-function.type.*crc"):
        bucket_of([pa.array([1])], [parse("INT")], 4, "crc")


@pytest.mark.parametrize("kind", ["TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6)"])
def test_a_timestamp_goes_to_javas_bucket_whatever_unit_it_comes_in(kind: str) -> None:
    millis = [1_704_067_200_123 + i * 1_000_003 for i in range(50)]
    types = {"k": parse(kind)}
    compact = types["k"].precision <= 3  # type: ignore[operator]
    # Up to three digits the milliseconds are in the slot; else the slot is offset and nanoseconds, the milliseconds follow.
    rows = [
        bytes(8) + (m.to_bytes(8, "little") if compact else (16 << 32).to_bytes(8, "little") + m.to_bytes(8, "little"))
        for m in millis
    ]
    expected = [abs(int(np.fmod(reference.murmur(row), 16))) for row in rows]
    zone = "UTC" if "ZONE" in kind else None
    assert lsm_core.format.bucket_of is bucket_of
    for unit, factor in (("ms", 1), ("us", 1000), ("ns", 1_000_000)):
        batch = pa.record_batch({"k": pa.array([m * factor for m in millis]).cast(pa.timestamp(unit, zone))})
        assert bucket_of(batch, types, 16).tolist() == expected
        assert bucket_of([batch.column("k")], list(types.values()), 16).tolist() == expected
    own = pa.record_batch({"k": pa.array(millis).cast(pa.timestamp("ms", zone)).cast(to_arrow(types["k"]))})
    assert bucket_of(own, ["k"], 16).tolist() == expected


def test_the_packages_short_form_takes_a_batch() -> None:
    batch = pa.record_batch({"k": pa.array([5, 17], pa.int32()), "v": ["a", "b"]})
    assert lsm_core.format.bucket_of(batch, ["k"], 100).tolist() == [96, 84]
    schema = TableSchema(0, (DataField(0, "k", parse("INT")), DataField(1, "v", parse("STRING"))), 1)
    assert lsm_core.format.binary_row(schema, batch)[0].as_py() == encode_row([5, "a"], [parse("INT"), parse("STRING")])
