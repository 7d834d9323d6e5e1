"""One op over all tables: a table that fails stops no other, and the run says at its end which did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import dagster as dg

from lsm_core.errors import DredgeError
from orchestration.table_card import count_text

T = TypeVar("T")
_NAMED: Final = 3


class TableFailed(DredgeError):
    """What failed of one table, in words that need no more: its message stands in the run as it is."""


def each_table(context: dg.OpExecutionContext, tables: Mapping[str, T], act: Callable[[T], None]) -> None:
    """Call ``act`` with what is given of each table (by name), in order. Raises dg.Failure at the end that names the first who failed and why."""
    failed: list[str] = []
    for name, table in tables.items():
        try:
            act(table)
        except TableFailed as error:
            failed.append(f"{name}: {error}")
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            failed.append(f"{name}: {type(error).__name__}: {error}")
        else:
            continue
        context.log.error(failed[-1])
    if failed:
        more = f" (and {count_text(len(failed) - _NAMED, 'more table')})" if len(failed) > _NAMED else ""
        raise dg.Failure("; ".join(failed[:_NAMED]) + more)


__all__ = ["TableFailed", "each_table"]
