"""Progress bar on standard error while a verb works; shown on a terminal only, and removed at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from lsm_core.cli.render import visible
from lsm_core.progress import report_progress_to

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@contextmanager
def progress_bar(title: str, *, hidden: bool = False) -> Iterator[None]:
    """Show a title, the elapsed time, and the progress of the stages (`lsm_core.progress`) while the context is open.

    Nothing is shown unless standard error is a terminal that can move its cursor. Output of the verb appears above the
    bar.

    Args:
        title: description of the work, such as "compact db.orders".
        hidden: whether to show nothing.
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
        bar.add_task(visible(title), total=None, done="")
        with report_progress_to(_Bars(bar)):
            yield


@dataclass
class _Line:
    """Line of one stage in the terminal.

    Attributes:
        number: id of the line's task in rich.
        total: units of the whole stage, None if unknown.
        unit: name of the units, for example "files".
        done: units done.
    """

    number: TaskID
    total: int | None
    unit: str
    done: int = 0


class _Bars:
    """Progress `Listener` that shows one line for each running stage."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._lines, self._lock = bar, list[_Line](), Lock()

    def begins(self, label: str, total: int | None, unit: str) -> None:
        """Add a line for a stage of ``total`` units (None: unknown) that begins."""
        with self._lock:
            self._lines.append(_Line(self._bar.add_task(f"  {visible(label)}", total=total, done=""), total, unit))
        self.advanced(0)

    def advanced(self, amount: int) -> None:
        """Advance the newest line by `amount` units of its stage."""
        with self._lock:
            self._move(self._lines[-1].done + amount if self._lines else 0)

    def reached(self, amount: int) -> None:
        """Set the newest line to `amount` finished units of its stage."""
        with self._lock:
            self._move(amount)

    def _move(self, done: int) -> None:
        if not self._lines or done < self._lines[-1].done:
            return
        line = self._lines[-1]
        line.done = done if line.total is None else min(done, line.total)
        amount_text = f"{line.done:,}" if line.total is None else f"{line.done:,} of {line.total:,}"
        self._bar.update(line.number, completed=line.done, done=f"{amount_text} {line.unit}")

    def ends(self) -> None:
        """Remove the newest line, because its stage has ended."""
        with self._lock:
            self._bar.remove_task(self._lines.pop().number)
