"""The reader of untrusted JSON: what it refuses, and what it reads as Jackson does."""

from __future__ import annotations

import inspect
import json
import sys

import pytest

from lsm_core.errors import CorruptFile
from lsm_core.json_text import LATEST_MS, parse_json, parse_object, time_of
from lsm_core.maintenance.action import MaintenancePlan
from lsm_core.maintenance.trash import TrashRecord


@pytest.mark.parametrize(
    "text",
    [
        "1e999", "-1e999", "NaN", "Infinity", "-Infinity", "1" + "0" * 400, str(2**64), str(-(2**63) - 1),
        "[" * 201 + "]" * 201, '{"a":' * 201 + "1" + "}" * 201, "[" * 500_000, "\0" * 100, '"\\', "",
        '"' + '\\"' * 100_000 + "[" * 300,
    ],
)  # fmt: skip
def test_what_is_no_plain_json_is_a_value_error(text: str) -> None:
    for data in (text, text.encode()):
        with pytest.raises(ValueError, match=r".+"):
            parse_json(data)
        with pytest.raises(CorruptFile):
            parse_object(b'{"member": ' + text.encode() + b"}", "a file")


def test_values_within_the_bounds_are_read() -> None:
    brackets = {"text": "[{" * 300 + '\\"', "many": [[]] * 300}  # neither nests deep
    deep = "[" * 200 + "]" * 200
    assert parse_json(json.dumps(brackets)) == brackets
    assert parse_json(deep) == json.loads(deep)
    assert parse_json(b"[1.5, -9223372036854775808, 18446744073709551615]") == [1.5, -(2**63), 2**64 - 1]


def test_a_member_there_twice_counts_last_as_in_jackson_and_is_refused_in_own_records() -> None:
    text = '{"a": 1, "a": 2}'
    assert parse_json(text) == {"a": 2}
    with pytest.raises(ValueError, match='"a" is there twice'):
        parse_json(text, unique=True)


@pytest.mark.parametrize("value", [-1, LATEST_MS + 1, 1.5, True, None, "1"])
def test_times_have_a_date(value: object) -> None:
    with pytest.raises(ValueError, match="not a time"):
        time_of(value)


@pytest.mark.parametrize("number", ["1e999", "-1", str(2**63), "null", "[" * 100_000])
def test_records_and_plans_with_impossible_times_are_corrupt_files(number: str) -> None:
    record = json.loads(TrashRecord("t", "expire_snapshots", "db.t", "", 1, 1, {}, ()).to_json())
    plan = json.loads(MaintenancePlan("compact", "db.t", None, ()).to_json())
    for member in ("created_ms", "not_before_ms"):
        text = json.dumps({**record, member: "here"}).replace('"here"', number)
        with pytest.raises(CorruptFile):
            TrashRecord.from_json(text.encode(), "a record")
    with pytest.raises(CorruptFile):
        MaintenancePlan.from_json(json.dumps({**plan, "created_ms": "here"}).replace('"here"', number))


def test_a_caller_near_the_end_of_its_stack_gets_the_same_error() -> None:
    """Callers handle ValueError alone."""

    def parse_below(frames: int) -> object:
        return parse_below(frames - 1) if frames else parse_json("[" * 190 + "]" * 190)

    assert parse_json("[" * 190 + "]" * 190)
    with pytest.raises(ValueError, match="nests deeper"):
        parse_below(sys.getrecursionlimit() - len(inspect.stack(0)) - 100)
