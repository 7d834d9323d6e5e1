"""CHAR values of ORC files come back as Paimon's reader gives them."""

from __future__ import annotations

import pyarrow as pa

from lsm_core.types import parse, to_arrow
from lsm_core.types.arrow import holds_char, unpadded


def test_full_length_values_lose_their_spaces_and_plain_texts_keep_them() -> None:
    kind = parse("CHAR(4)")
    assert unpadded(pa.array(["ab  ", "abcd", None, "    ", "üx  "]), kind).to_pylist() == [
        "ab",
        "abcd",
        None,
        "",
        "üx",
    ]
    assert unpadded(pa.array(["ab ", "abcd"]), kind).to_pylist() == ["ab ", "abcd"], "another writer's plain texts"


def test_values_inside_others_too() -> None:
    kind = parse(
        {"type": "ROW", "fields": [
            {"id": 1, "name": "c", "type": "CHAR(3)"},
            {"id": 2, "name": "m", "type": {"type": "MAP", "key": "CHAR(2)", "value": {"type": "ARRAY", "element": "CHAR(2)"}}},
            {"id": 3, "name": "n", "type": {"type": "MULTISET", "element": "CHAR(2)"}}, {"id": 4, "name": "s", "type": "STRING"}]}
    )  # fmt: skip
    given = [
        {"c": "a  ", "m": [("k ", ["x ", None])], "n": [("z ", 2)], "s": "t "},
        {"c": None, "m": [], "n": None, "s": None},
    ]
    wanted = [
        {"c": "a", "m": [("k", ["x", None])], "n": [("z", 2)], "s": "t "},
        {"c": None, "m": [], "n": None, "s": None},
    ]
    assert unpadded(pa.array(given, to_arrow(kind)), kind).to_pylist() == wanted
    assert not holds_char(parse("STRING"))
