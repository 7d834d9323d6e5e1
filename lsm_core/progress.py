"""Progress of long work.

Code reports progress to this module, and a listener in this process (the command line's progress bar) shows it.

Without a listener, progress is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Listener(Protocol):
    """Receiver of progress for nested stages of work; called from any thread."""

    def begins(self, label: str, total: int | None, unit: str) -> None:
        """Start a stage inside the current one.

        Args:
            label: description of the work.
            total: number of units, or None if unknown.
            unit: name of the unit.
        """
        ...

    def advanced(self, amount: int) -> None:
        """Add ``amount`` finished units to the innermost stage."""
        ...

    def reached(self, amount: int) -> None:
        """Raise the finished units of the innermost stage to at least ``amount``."""
        ...

    def ends(self) -> None:
        """End the innermost stage, finished or not."""
        ...


class _NullListener:
    """Listener that ignores all progress."""

    def begins(self, label: str, total: int | None, unit: str) -> None:
        """Ignore the start of a stage."""

    def advanced(self, amount: int) -> None:
        """Ignore ``amount`` finished units."""

    def reached(self, amount: int) -> None:
        """Ignore that ``amount`` units are finished."""

    def ends(self) -> None:
        """Ignore the end of a stage."""


_listeners: list[Listener] = [_NullListener()]
"""Stack of listeners; progress is sent to the innermost one."""


@contextmanager
def report_progress_to(listener: Listener) -> Iterator[None]:
    """Send all progress of this process to ``listener`` while the context is open."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def stage(label: str, total: int | None, unit: str) -> Iterator[None]:
    """Report a stage of work while the context is open; :func:`advance` and :func:`reached` report its progress.

    Args:
        label: description of the work.
        total: number of units, or None if unknown.
        unit: name of the unit.
    """
    listener = _listeners[-1]
    listener.begins(label, total, unit)
    try:
        yield
    finally:
        listener.ends()


def advance(amount: int = 1) -> None:
    """Add ``amount`` finished units to the innermost stage."""
    _listeners[-1].advanced(amount)


def reached(amount: int) -> None:
    """Raise the finished units of the innermost stage to at least ``amount``."""
    _listeners[-1].reached(amount)
