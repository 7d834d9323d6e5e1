"""The suite itself: built from a table's schema, run by great-expectations over pandas; imported only inside the check."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsm_core.errors import DredgeError

if TYPE_CHECKING:
    import pandas as pd

    from orchestration.model import TableCard

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")


class SuiteCrashed(DredgeError):
    """An expectation could not be evaluated: a fault of the check, not of the data."""


@dataclass(frozen=True)
class Outcome:
    """One expectation in words, whether it holds, and how many rows break it."""

    text: str
    passed: bool
    unexpected: int


def run_suite(card: TableCard, frame: pd.DataFrame) -> list[Outcome]:
    """Evaluate the suite over ``frame``; raises ``SuiteCrashed`` when an expectation itself fails to run."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    batch = (
        context.data_sources.add_pandas("rows")
        .add_dataframe_asset(card.name)
        .add_batch_definition_whole_dataframe("all")
    )
    suite = gx.ExpectationSuite(
        name=f"{card.name} keeps its own rules", expectations=[made for _, made in expectations(card, frame)]
    )
    result = batch.get_batch({"dataframe": frame}).validate(suite)
    texts = [text for text, _ in expectations(card, frame)]
    return [_outcome(card.name, text, item) for text, item in zip(texts, result.results, strict=True)]


def expectations(card: TableCard, frame: pd.DataFrame) -> list[tuple[str, Any]]:
    """Return the expectations with their words: what the schema promises, said without the engine that wrote the rows."""
    import great_expectations.expectations as gxe

    present = set(frame.columns)
    required = [
        column.name
        for column in card.columns
        if column.name in present and (not column.nullable or column.name in card.primary_keys)
    ]
    made: list[tuple[str, Any]] = [
        (f"{name} is never null", gxe.ExpectColumnValuesToNotBeNull(column=name)) for name in required
    ]
    if len(card.primary_keys) == 1:
        made.append(
            (f"{card.primary_keys[0]} is unique", gxe.ExpectColumnValuesToBeUnique(column=card.primary_keys[0]))
        )
    elif card.primary_keys:
        text = f"({', '.join(card.primary_keys)}) is unique"
        made.append((text, gxe.ExpectCompoundColumnsToBeUnique(column_list=list(card.primary_keys))))
    if not made:
        made.append(("the table has columns", gxe.ExpectTableColumnCountToBeBetween(min_value=1)))
    return made


def _outcome(table: str, text: str, item: Any) -> Outcome:
    if any(detail.get("raised_exception") for detail in _exceptions(item.exception_info)):
        raise SuiteCrashed(f"table {table}: expectation '{text}' crashed: {item.exception_info}")
    return Outcome(text, bool(item.success), int((item.result or {}).get("unexpected_count") or 0))


def _exceptions(info: Any) -> list[dict[str, Any]]:
    """Return the exception details, which great-expectations keeps either flat or one level down, by metric."""
    if not isinstance(info, dict):
        return []
    return [info] if "raised_exception" in info else [value for value in info.values() if isinstance(value, dict)]
