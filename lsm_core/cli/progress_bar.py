"""What a person sees while a verb works: a bar on standard error, on a terminal alone, gone when the work is done."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from lsm_core.cli.render import visible
from lsm_core.progress import heard_by

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@contextmanager
def progress_bar(what: str, *, hidden: bool = False) -> Iterator[None]:
    """Show ``what`` is done, for how long already, and how far its stages (`lsm_core.progress`) have come.

    Nothing is shown where ``hidden``, or where standard error is no terminal that moves its cursor. What is printed meanwhile stands above the bar.
    """
    if hidden or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[done]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    # Redirected output stays where it was sent; on a terminal it is printed above the bar.
    bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty())
    with bar:
        bar.add_task(visible(what), total=None, done="")
        with heard_by(_Bars(bar)):
            yield


@dataclass
class _Line:
    number: TaskID
    total: int | None
    unit: str
    done: int = 0


class _Bars:
    """A line for each stage that is under way (a `Listener`)."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._lines, self._lock = bar, list[_Line](), Lock()

    def begins(self, what: str, total: int | None, unit: str) -> None:
        """Add a line."""
        with self._lock:
            self._lines.append(_Line(self._bar.add_task(f"  {visible(what)}", total=total, done=""), total, unit))
        self.advanced(0)

    def advanced(self, amount: int) -> None:
        """Move the newest line's bar."""
        with self._lock:
            self._move(self._lines[-1].done + amount if self._lines else 0)

    def reached(self, amount: int) -> None:
        """Move the newest line's bar at least so far."""
        with self._lock:
            self._move(amount)

    def _move(self, done: int) -> None:
        if not self._lines or done < self._lines[-1].done:
            return
        line = self._lines[-1]
        line.done = done if line.total is None else min(done, line.total)
        told = f"{line.done:,}" if line.total is None else f"{line.done:,} of {line.total:,}"
        self._bar.update(line.number, completed=line.done, done=f"{told} {line.unit}")

    def ends(self) -> None:
        """Take the newest line away."""
        with self._lock:
            self._bar.remove_task(self._lines.pop().number)


__all__ = ["progress_bar"]
