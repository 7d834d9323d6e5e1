"""The grammar of `CALL`: names and literals, and nothing that would be evaluated."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lsm_core.errors import InvalidOption
from lsm_core.sql.call_statement import is_call, parse_call


@pytest.mark.parametrize(
    ("text", "positional", "named"),
    [
        ("CALL sys.compact('db.t')", ("db.t",), {}),
        ("sys.compact(table => 'db.t')", (), {"table": "db.t"}),
        ('call paimon.SYS.Compact( `table` => "db.t" , n=>-3L );', (), {"table": "db.t", "n": -3}),
        (
            "CALL sys.compact('it''s', 'a\\'b\\\\n', 1.50, 2e3, 7BD)",
            ("it's", "a'b\\n", Decimal("1.50"), Decimal(2000), 7),
            {},
        ),
        (
            "CALL sys.compact(true, FALSE, null, TIMESTAMP '2024-01-01 00:00:00')",
            (True, False, None, "2024-01-01 00:00:00"),
            {},
        ),
        ("CALL sys.compact(map('k', 'v', 'l', 2), array(1, 'x'))", ({"k": "v", "l": 2}, (1, "x")), {}),
        ("/* why */ CALL sys.compact() -- done", (), {}),
        (
            "CALL sys.compact('db.t', n => cast(10 as bigint), m => CAST(null AS STRING), k => cast('7' as INT))",
            ("db.t",),
            {"n": 10, "m": None, "k": 7},
        ),
    ],
)
def test_a_statement_is_read(text: str, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    read = parse_call(text)
    assert (read.procedure, read.positional, dict(read.named)) == ("compact", positional, named)
    assert is_call(text) == text.upper().removeprefix("/* WHY */ ").startswith("CALL")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CALL",
        "CALL compact('db.t')",
        "CALL other.compact('db.t')",
        "CALL a.b.sys.compact('db.t')",
        "CALL sys.compact('db.t'",
        "CALL sys.compact('db.t') more",
        "CALL sys.compact('db.t',)",
        "CALL sys.compact(1 + 1)",
        "CALL sys.compact(concat('a', 'b'))",
        "CALL sys.compact((SELECT 1))",
        "CALL sys.compact(table => 'a', table => 'b')",
        "CALL sys.compact(table => 'b', 'a')",
        "CALL sys.compact(cast('x' as bigint))",
        "CALL sys.compact(cast(true as int))",
        "CALL sys.compact(cast(1 as date))",
        "CALL sys.compact(cast(1 + 1 as int))",
        "CALL sys.compact('unclosed)",
        "CALL sys.compact(map('k'))",
        "CALL sys.compact('a'); DROP TABLE x",
        "CALL sys.compact(__import__('os'))",
        "x" * 70_000,
    ],
)
def test_what_is_no_call_of_literals_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_call(text)


def test_an_error_names_the_place() -> None:
    with pytest.raises(InvalidOption, match=r"'\+ 1\)'.*literals, names and signs only|character 20"):
        parse_call("CALL sys.compact(1 + 1)")
