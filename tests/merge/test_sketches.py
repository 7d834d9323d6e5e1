"""Bitmaps and sketches: the bytes of Paimon 1.4.2, what is refused, and what never reaches native code."""

from __future__ import annotations

import random
from contextlib import suppress
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasketches import hll_sketch, tgt_hll_type, update_theta_sketch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from lsm_core.errors import InvalidData, InvalidOption
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.merge import MergeCounters, RunInput, merge_function, merge_streams
from lsm_core.merge import functions as room
from lsm_core.merge.functions import AggregateFunction, GroupError, aggregate_function, roaring64
from lsm_core.merge.functions.base import INVALID, LATE
from lsm_core.merge.functions.numeric import SumIntegers
from lsm_core.merge.order_free import order_free
from lsm_core.types import parse
from tests.support.samples import examples
from tests.vectors.sketches import sketch_of

NAMES = ("rbm32", "rbm64", "hll_sketch", "theta_sketch")
# accumulator, input and union, printed by RoaringBitmap32, RoaringBitmap64, HllSketchUtil and ThetaSketch of Paimon 1.4.2
JAVA = {
    "rbm32": (
        "rbm32",
        "3a300000010000000000020010000000010002000300",
        "3b3001000100000a0001000000010003000a007011",
        "3b3001000100000c0001000000010001000c007011",
    ),
    "rbm64": (
        "rbm64",
        (
            "01010000000000000004000000000000000000000000000000000001000000fe01000000010203000000010002000300"
            "01000000000000000000000000000000"
        ),
        (
            "010300000000000000000200000000ff0000020002000000000100040000000000000000000000000000000000040000"
            "00000000012a05010000000000000004000000ffffffffffff020000000000000001000000fe03000000010201000000"
            "0300010004000000010000f20300010201000000ffff03000000000000000000000002000000"
        ),
        (
            "010300000000000000000200000000ff0000020002000000000100040000000000000000000000000000000000040000"
            "00000000012a05010000000000000004000000ffffffffffff020000000000000001000000fe03000000010203000000"
            "010002000300010004000000010000f20300010201000000ffff03000000000000000000000002000000"
        ),
    ),
    "hll list": (
        "hll_sketch",
        "0201070c030802002bf2fb06862ff90d",
        "0201070c03080300862ff90d7581660781bc5d06",
        "0201070c03080400862ff90d7581660781bc5d062bf2fb06",
    ),
    "hll registers": (
        "hll_sketch",
        (
            "0a0107040000000ac65a5653f5be40400000000000f00e40000000000000000000000000000000000401010103010306"
            "0303050202020701"
        ),
        "0a0107040000000616ce50ebadb337400000000000b818400000000000000000020000000000000083101c81101800500881100400",
        "0a0107040018010200000000000000000000000000000740000000000000000002000000000000001360125222141106",
    ),
    "hll set": (
        "hll_sketch",
        "0201070c03080600cbd7c2042bf2fb06862ff90d7581660781bc5d067b65e608",
        (
            "0301070c0500000108000000000000000000000000000000000000000000000000000000464ab7040000000000000000"
            "0000000000000000000000000000000000000000ae3c881100000000b05b461200000000000000000000000000000000"
            "cef05b1ff671f20600000000000000006ec5340600000000db522d047c74b907000000000000000000000000"
        ),
        (
            "0301070c050800010e0000007581660781bc5d06862ff90d464ab704cbd7c2042bf2fb06ae3c8811b05b46127b65e608"
            "cef05b1ff671f2066ec53406db522d047c74b907"
        ),
    ),
    "theta": (
        "theta_sketch",
        "01030300003acc9315f97dcbbd86a105",
        "02030300001acc93020000000000803fc397fc1281709d1eba40b3c1da06695d",
        "02030300001acc93030000000000803f15f97dcbbd86a105c397fc1281709d1eba40b3c1da06695d",
    ),
    "theta single": (
        "theta_sketch",
        "01030300001e0000",
        "01030300003acc93e0f48bea9983c37c",
        "01030300003acc93e0f48bea9983c37c",
    ),
    "theta empty": (
        "theta_sketch",
        "01030300001e0000",
        "01030300001e0000",
        "01030300001e0000",
    ),
}


def function(name: str) -> AggregateFunction:
    """The function of a column f VARBINARY."""
    return aggregate_function(name, "VARBINARY(2000)")


def union(name: str, *values: bytes | None) -> bytes | None:
    """What one group of these inputs becomes."""
    folded = function(name).fold(pa.array(values, pa.binary()), np.array([0, len(values)]))
    return folded[0].as_py()  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", JAVA)
def test_unions_are_the_bytes_that_java_writes(case: str) -> None:
    name, accumulator, value, expected = JAVA[case]
    found = union(name, bytes.fromhex(accumulator), bytes.fromhex(value))
    assert found is not None and found.hex() == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_lone_value_stays_byte_for_byte_and_is_not_even_read(name: str) -> None:
    assert union(name, None, b"not a sketch", None) == b"not a sketch"
    assert union(name, None, None) is None
    assert union(name) is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("broken", [b"", b"\x01", b"not a sketch", b"\xff" * 64])
def test_broken_bytes_are_refused_and_the_column_named(name: str, broken: bytes) -> None:
    with pytest.raises(GroupError, match="column 'f'") as refused:
        union(name, sketch_of(name, [1]), broken)
    assert refused.value.kind == INVALID


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_value_of_a_table_names_table_column_and_key(name: str) -> None:
    rows = {"_KEY_k": [7, 7], "_SEQUENCE_NUMBER": [1, 2], "_VALUE_KIND": pa.array([0, 0], pa.int8()), "k": [7, 7]}
    batch = pa.RecordBatch.from_pydict({**rows, "f": pa.array([sketch_of(name, [1]), b"x"])})
    with pytest.raises(InvalidData, match=r"db\.t.*f.*7"):
        list(merge_streams([RunInput(iter([batch]))], merge_function(schema("VARBINARY(9)"), options(name), "db.t")))


@pytest.mark.parametrize("name", NAMES)
def test_only_varbinary_is_taken_and_nothing_is_taken_back(name: str) -> None:
    with pytest.raises(InvalidOption, match="VARBINARY"):
        aggregate_function(name, "STRING")
    with pytest.raises(GroupError, match="does not support retracts"):
        function(name).retract(pa.array([b"a"]), pa.array([b"b"]))


@pytest.mark.parametrize("name", ["rbm32", "rbm64"])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_bitmaps_hold_exactly_the_union_whatever_the_order(name: str, data: Any) -> None:
    top = 1 << (32 if name == "rbm32" else 64)
    near = st.integers(0, 70_000) | st.integers(0, top - 1) | st.integers(0, 300).map(lambda n: (n << 16) % top)
    sets = data.draw(st.lists(st.sets(near, max_size=120), min_size=2, max_size=4))
    stretch = data.draw(st.integers(0, top - 9000))
    sets[0] |= set(range(stretch, stretch + data.draw(st.sampled_from([0, 5, 9000]))))
    found = union(name, *(sketch_of(name, sorted(values)) for values in sets))
    assert found is not None
    everything = sorted(set().union(*sets))
    ours = BitMap.deserialize(found) if name == "rbm32" else roaring64.values(roaring64.decode(found))
    assert list(ours) == everything
    # any grouping, any order: the same bytes
    parts = [sketch_of(name, sorted(values)) for values in reversed(sets)]
    assert union(name, parts[0], union(name, *parts[1:])) == union(name, found, found) == found


def test_bitmaps_of_many_keys_take_every_kind_of_node() -> None:
    for count in (1, 4, 5, 16, 17, 48, 49, 256, 700):
        values = [n << 16 | n for n in range(count)] + [n << 40 for n in range(count)]
        data = roaring64.encode(roaring64.of(reversed(values)))
        assert set(roaring64.values(roaring64.decode(data))) == set(values)
        assert roaring64.encode(roaring64.decode(data)) == data


@pytest.mark.parametrize("name", ["hll_sketch", "theta_sketch"])
def test_sketches_count_distinct_values(name: str) -> None:
    data = union(name, *(sketch_of(name, list(range(start, start + 4000))) for start in (0, 2000, 6000)))
    kind = hll_sketch if name == "hll_sketch" else room.sketches.compact_theta_sketch
    assert kind.deserialize(data).get_estimate() == pytest.approx(10_000, rel=0.05)


def test_a_theta_union_is_the_same_in_any_grouping() -> None:
    parts = [sketch_of("theta_sketch", list(range(n * 3000, n * 3000 + 5000))) for n in range(4)]
    left = union("theta_sketch", *parts)
    right = union("theta_sketch", parts[0], union("theta_sketch", parts[1], union("theta_sketch", *parts[2:])))
    late = function("theta_sketch").fold_ops(pa.array(parts), np.array([0, 4]), np.array([0, LATE, 0, LATE], np.int8))
    assert left == right == late.values[0].as_py()


def test_an_hll_union_depends_on_what_is_merged_first() -> None:
    """A union is as large as its input: a short list for fewer registers makes it smaller, unless it was merged before."""
    made = (_filled(hll_sketch(12), 3000), _filled(hll_sketch(8), 1), _filled(hll_sketch(12), 2))
    single, two, three = (bytes(sketch.serialize_compact()) for sketch in made)
    first = hll_sketch.deserialize(union("hll_sketch", union("hll_sketch", single, two), three))
    last = hll_sketch.deserialize(union("hll_sketch", single, union("hll_sketch", two, three)))
    assert (first.lg_config_k, last.lg_config_k) == (8, 12)


def test_updatable_and_compact_forms_mean_the_same() -> None:
    sketches = [hll_sketch(size, kind) for size in (4, 10, 12) for kind in _kinds() for _ in range(4)]
    for number, sketch in enumerate(sketches):
        for value in range((0, 5, 40, 9000)[number % 4]):
            sketch.update(value)
        forms = bytes(sketch.serialize_compact()), bytes(sketch.serialize_updatable())
        other = sketch_of("hll_sketch", [1, 2])
        answers = {hll_sketch.deserialize(union("hll_sketch", other, form)).get_estimate() for form in forms}
        assert max(answers) - min(answers) <= 0.001 * max(answers)


def _kinds() -> list[Any]:
    return [tgt_hll_type.HLL_4, tgt_hll_type.HLL_6, tgt_hll_type.HLL_8]


@pytest.mark.parametrize("name", NAMES)
def test_damaged_bytes_are_a_union_or_an_error_never_a_crash(name: str) -> None:
    chance = random.Random(5)
    good = [sketch_of(name, values) for values in ([], [1], list(range(0, 90, 3)), list(range(3000)), [1 << 30, 7])]
    if name == "hll_sketch":
        good += [_filled(hll_sketch(9, kind), 5000).serialize_updatable() for kind in _kinds()]
    if name == "theta_sketch":
        good.append(_filled(update_theta_sketch(6), 900).compact(ordered=False).serialize())
    for _ in range(1500):
        damaged = bytearray(chance.choice(good))
        for _ in range(chance.choice([1, 2, 5])):
            damaged[int(chance.random() ** 3 * len(damaged))] = chance.randrange(256)
        if chance.random() < 0.2:
            del damaged[chance.randrange(len(damaged)) :]
        with suppress(GroupError):
            assert union(name, bytes(damaged), chance.choice(good))


def _filled(sketch: Any, count: int) -> Any:
    for value in range(count):
        sketch.update(value)
    return sketch


def schema(kind: str) -> TableSchema:
    """Key k and column f."""
    fields = (DataField(0, "k", parse("BIGINT NOT NULL")), DataField(1, "f", parse(kind)))
    return TableSchema(0, fields, 1, primary_keys=("k",))


def options(name: str) -> dict[str, str]:
    """An aggregation table whose column f has this function."""
    return {"merge-engine": "aggregation", "fields.f.aggregate-function": name}


@pytest.mark.parametrize("name", ["rbm32", "rbm64", "theta_sketch"])
def test_exact_unions_are_order_free_and_hll_is_not(name: str) -> None:
    assert order_free(schema("VARBINARY(9)"), options(name), has_retracts=False).ok
    verdict = order_free(schema("VARBINARY(9)"), options("hll_sketch"), has_retracts=False)
    assert not verdict.ok and "estimators" in verdict.reasons[0]


class Loudest(SumIntegers):
    """A function from outside: the sum, under a name of its own."""

    name = "loudest"


def test_a_function_of_another_package_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("loudest", f"{__name__}:Loudest", room.ENTRY_POINTS)
    monkeypatch.setattr(EntryPoint, "load", lambda self: Loudest)

    def installed(group: str, name: str | None = None) -> list[EntryPoint]:
        return [point] if group == room.ENTRY_POINTS and name in {None, "loudest"} else []

    monkeypatch.setattr("importlib.metadata.entry_points", installed)
    assert "loudest" in room.function_names()
    made = aggregate_function("loudest", "BIGINT", "f", {"fields.f.ignore-retract": "true"})
    assert isinstance(made, Loudest) and made.ignore_retract
    assert made.fold(pa.array([1, 2, 4]), np.array([0, 3])).to_pylist() == [7]
    merged = _merged("BIGINT", options("loudest"), [(1, 5), (1, 6), (2, 1)], MergeCounters())
    assert merged.column("f").to_pylist() == [11, 1]
    with pytest.raises(InvalidOption, match="loudest"):
        aggregate_function("quietest", "BIGINT")


def _merged(kind: str, chosen: dict[str, str], rows: list[tuple[int, Any]], counters: MergeCounters) -> pa.Table:
    keys, values = zip(*rows, strict=True)
    table = schema(kind)
    columns = {
        "_KEY_k": pa.array(keys, pa.int64()),
        "_SEQUENCE_NUMBER": pa.array(range(len(rows)), pa.int64()),
        "_VALUE_KIND": pa.array([0] * len(rows), pa.int8()),
        "k": pa.array(keys, pa.int64()),
        "f": pa.array(values, table.arrow_schema.field("f").type),
    }
    inputs = [RunInput(iter([pa.RecordBatch.from_pydict(columns)]))]
    return pa.Table.from_batches(merge_streams(inputs, merge_function(table, chosen, "db.t"), counters=counters))


def test_the_share_of_keys_that_went_one_by_one_is_counted() -> None:
    rows = [(1, [1]), (1, [2]), (2, [3]), (2, None), (3, [4]), (4, [5]), (4, [5]), (4, [6])]
    for name, kind, alone in (("rbm32", "VARBINARY(99)", 2), ("sum", "BIGINT", 0), ("product", "DECIMAL(38, 2)", 2)):
        counters = MergeCounters()
        made = [(key, value and (sketch_of(name, value) if name == "rbm32" else value[0])) for key, value in rows]
        _merged(kind, options(name), made, counters)
        assert (counters.keys_folded, counters.keys_one_by_one) == (3, alone)
