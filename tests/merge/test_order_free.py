"""Which tables any compaction leaves as they are: the verdict, with its reasons."""

from __future__ import annotations

import pytest

from lsm_core.format.schema import DataField, TableSchema
from lsm_core.merge.order_free import order_free
from lsm_core.types import parse

SUM, LAST = "fields.a.aggregate-function", "fields.default-aggregate-function"
GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "a"}
AGGREGATION = {"merge-engine": "aggregation"}


def table(kind: str = "INT") -> TableSchema:
    """Key k, columns a, g and s."""
    names = [("k", "INT NOT NULL"), ("a", kind), ("g", "INT"), ("s", "INT")]
    fields = tuple(DataField(i, name, parse(text)) for i, (name, text) in enumerate(names))
    return TableSchema(0, fields, 3, primary_keys=("k",))


@pytest.mark.parametrize(
    ("options", "kind", "retracts"),
    [
        ({}, "INT", True),
        ({"sequence.field": "s"}, "INT", True),
        ({"merge-engine": "first-row", "ignore-delete": "true"}, "INT", True),
        ({"merge-engine": "partial-update"}, "INT", False),
        (GROUP, "INT", False),
        ({**GROUP, SUM: "sum"}, "DECIMAL(10, 2)", False),
        (AGGREGATION, "INT", False),
        ({**AGGREGATION, SUM: "sum", LAST: "last_value"}, "INT", True),
        ({**AGGREGATION, SUM: "product", "sequence.field": "s", LAST: "last_value"}, "INT", False),
        ({**AGGREGATION, SUM: "max", LAST: "last_value"}, "INT", True),
        ({**AGGREGATION, SUM: "listagg"}, "STRING", False),
        ({**AGGREGATION, "sequence.field": "s", LAST: "max"}, "INT", False),
    ],
)
def test_order_free_tables(options: dict[str, str], kind: str, retracts: bool) -> None:
    assert order_free(table(kind), options, has_retracts=retracts).reasons == ()
    assert order_free(table(kind), options, has_retracts=retracts).ok


@pytest.mark.parametrize(
    ("options", "kind", "retracts", "reason"),
    [
        # the six tables on which the real Paimon changes an answer
        ({"merge-engine": "partial-update", "sequence.field": "s"}, "INT", False, "sequence.field s"),
        (
            {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
            "INT",
            True,
            "remove-record",
        ),
        ({**GROUP, SUM: "sum"}, "INT", True, "retracts"),
        ({**AGGREGATION, "sequence.field": "s"}, "INT", False, "last_non_null_value folds by sequence.field"),
        (AGGREGATION, "INT", True, "last_non_null_value cannot retract"),
        ({**AGGREGATION, SUM: "sum"}, "DOUBLE", False, "last bits"),
        # and more
        ({**GROUP, SUM: "listagg"}, "STRING", False, "listagg in a sequence group"),
        ({**GROUP, SUM: "last_non_null_value"}, "INT", False, "last_non_null_value in a sequence group"),
        ({**AGGREGATION, SUM: "product"}, "DECIMAL(10, 2)", False, "products of DECIMAL(10, 2) round"),
        ({**AGGREGATION, "aggregation.remove-record-on-delete": "true"}, "INT", True, "remove-record"),
        ({**AGGREGATION, SUM: "last_value", "fields.a.ignore-retract": "true"}, "INT", True, "ignored retracts"),
    ],
)
def test_order_sensitive_tables_say_why(options: dict[str, str], kind: str, retracts: bool, reason: str) -> None:
    verdict = order_free(table(kind), options, has_retracts=retracts)
    assert not verdict.ok
    assert any(reason in text for text in verdict.reasons), verdict.reasons


EXPIRY = {"record-level.expire-time": "1 d", "record-level.time-field": "a"}


@pytest.mark.parametrize("options", [{}, {"merge-engine": "partial-update"}, {**AGGREGATION, SUM: "max"}])
def test_rows_that_expire_make_a_unit_order_sensitive_only_where_some_may_be_over(options: dict[str, str]) -> None:
    given = {**EXPIRY, **options}
    assert order_free(table(), given, has_retracts=False, has_expired=False).ok
    for more in ({}, {"has_expired": True}):
        verdict = order_free(table(), given, has_retracts=False, **more)
        assert [text.partition(":")[0] for text in verdict.reasons] == ["record-level expiry"]


def test_times_that_a_function_makes_up_may_be_over_though_none_was() -> None:
    given = {**EXPIRY, **AGGREGATION, SUM: "sum"}
    verdict = order_free(table(), given, has_retracts=False, has_expired=False)
    assert verdict.reasons == ("column 'a': sum creates times that no row had, and these may be expired",)
