"""Loop of an op over many tables: a failed table stops no other, and the run fails at its end with all failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import dagster as dg

from lsm_core.errors import DredgeError
from platform_core.table_card import count_text

T = TypeVar("T")
_MOST_NAMED: Final = 3


class TableFailed(DredgeError):
    """Failure of one table whose message needs no further context."""


def process_tables(context: dg.OpExecutionContext, tables: Mapping[str, T], process: Callable[[T], None]) -> None:
    """Call a function for each table, in order.

    Args:
        context: context of the op, for its log.
        tables: argument of the function for each table, by name.
        process: function to call.

    Raises:
        dg.Failure: at the end, if tables failed; it names the first ones with their errors.
    """
    failed: list[str] = []
    for name, table in tables.items():
        try:
            process(table)
        except TableFailed as error:
            failed.append(f"{name}: {error}")
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            failed.append(f"{name}: {type(error).__name__}: {error}")
        else:
            continue
        context.log.error(failed[-1])
    if failed:
        more = f" (and {count_text(len(failed) - _MOST_NAMED, 'more table')})" if len(failed) > _MOST_NAMED else ""
        raise dg.Failure("; ".join(failed[:_MOST_NAMED]) + more)
