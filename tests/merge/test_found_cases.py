"""Single cases that random histories found: each stays as the reference has it, told by its values."""

from __future__ import annotations

from decimal import Decimal

import pytest

from lsm_core.errors import InvalidData
from tests.merge.one_key import BEFORE, DELETE, INSERT, answer, history
from tests.merge.random_histories import merged
from tests.merge.random_tables import KEYTIME, NESTED

GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "a"}
AGGREGATION = {"merge-engine": "aggregation"}


def test_ignored_deletes_do_not_move_a_sequence_group() -> None:
    options = {"merge-engine": "partial-update", "fields.g,h.sequence-group": "a", "ignore-delete": "true"}
    versions = [(INSERT, 1, 1, 10), (DELETE, 9, 9, 90), (INSERT, 2, 1, 20)]
    assert answer(options, {"g": "INT", "h": "INT", "a": "INT"}, versions) == (2, 1, 20)


def test_a_first_value_that_a_removed_row_never_had_is_still_to_come() -> None:
    options = {
        **GROUP,
        "fields.a.aggregate-function": "first_non_null_value",
        "fields.a.ignore-retract": "true",
        "partial-update.remove-record-on-sequence-group": "g",
    }
    kinds = {"g": "INT", "a": "INT"}
    # late data before a first value is not a new first value: the accumulator is taken for it
    nothing = [(INSERT, 1, None), (DELETE, 3, 30), (INSERT, 2, 20)]
    assert answer(options, kinds, nothing) == (3, 30)
    something = [(INSERT, 1, 10), (DELETE, 3, 30), (INSERT, 2, 20)]
    assert answer(options, kinds, something) == (3, 20)
    skipped = [(INSERT, None, 10), (DELETE, 3, 30), (INSERT, 4, 20)]
    assert answer(options, kinds, skipped) == (4, 20)


def test_quotients_of_decimals_that_do_not_end_are_refused() -> None:
    options = {**AGGREGATION, "fields.a.aggregate-function": "product"}
    kinds = {"a": "DECIMAL(20, 2)"}
    assert answer(options, kinds, [(INSERT, Decimal("1.00")), (BEFORE, Decimal("8.00"))]) == (Decimal("0.13"),)
    for divisor in ("1.05", "3.00"):  # times 1.05 the rounded quotient gives 8 again
        with pytest.raises(InvalidData, match="does not end"):
            merged(history(options, kinds, [(INSERT, Decimal("8.00")), (BEFORE, Decimal(divisor))]))


NESTED_UPDATE = {**AGGREGATION, "fields.a.aggregate-function": "nested_update"}


def test_retracting_from_no_nested_table_looks_at_no_key() -> None:
    options = {**NESTED_UPDATE, "fields.a.nested-key": "k", "fields.a.nested-key-null-strategy": "error"}
    versions = [(BEFORE, [(None, "a", 1)]), (INSERT, [(1, "b", 2)])]
    assert answer(options, {"a": NESTED}, versions) == ([(1, "b", 2)],)


def test_the_map_that_a_fold_begins_with_keeps_entries_without_a_time() -> None:
    options = {**AGGREGATION, "fields.a.aggregate-function": "merge_map_with_keytime"}
    first, later = (
        [(1, (1, None)), (2, None), (3, (3, "5"))],
        [(1, (10, "1")), (2, None), (3, (30, "5")), (4, (4, None))],
    )
    assert answer(options, {"a": KEYTIME}, [(INSERT, first), (INSERT, later)]) == ([(1, (10, "1")), (3, (3, "5"))],)


def test_aggregation_takes_deletes_back_whatever_ignore_delete_says() -> None:
    """As in Java, where only the writer looks at the option."""
    options = {**AGGREGATION, "fields.a.aggregate-function": "sum", "ignore-delete": "true"}
    assert answer(options, {"a": "INT"}, [(INSERT, 5), (DELETE, 2)]) == (3,)
