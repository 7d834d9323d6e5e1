"""Types that a newer version of Paimon adds: text and objects are kept as they are, and only schema files may hold them."""

from __future__ import annotations

from typing import Any

import pytest

from lsm_core.errors import InvalidSchema
from lsm_core.types import TypeRoot, parse, parse_stored, to_json


@pytest.mark.parametrize(
    "stored",
    [
        "GEOMETRY(OGC:CRS84)",
        "GEOGRAPHY(OGC:CRS84, spherical) NOT NULL",
        "HYPERLOGLOG",
        "INTERVAL(3) NOT NULL",
        {"type": "GRAPH NOT NULL", "node": {"type": "ROW", "fields": []}},
    ],
)
def test_an_unknown_type_is_kept_as_it_is(stored: Any) -> None:
    kind = parse_stored(stored)
    assert kind.root is TypeRoot.UNKNOWN
    assert to_json(kind) == stored
    with pytest.raises(InvalidSchema):
        parse(stored)


def test_an_unknown_type_may_be_inside_another() -> None:
    stored = {"type": "ARRAY", "element": "HYPERLOGLOG NOT NULL"}
    kind = parse_stored(stored)
    assert [inner.root for inner in kind.with_inner()] == [TypeRoot.ARRAY, TypeRoot.UNKNOWN]
    assert to_json(kind) == stored


@pytest.mark.parametrize("stored", ["DECIMAL(99)", "INT(", "", "3D", "FOO\nBAR", None, {"type": 3}, "ARRAY<"])
def test_what_is_no_type_stays_an_error(stored: Any) -> None:
    with pytest.raises(InvalidSchema):
        parse_stored(stored)
