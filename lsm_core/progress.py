"""How far long work has come: whoever does it tells, and whoever listens in this process (the command line's bar) hears. Nobody listens by default."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Listener(Protocol):
    """Hears of stages of work, which may lie within each other. Called from any thread."""

    def begins(self, what: str, total: int | None, unit: str) -> None:
        """Work in so many ``unit`` (None: nobody knows) begins, within what began before and has not ended."""
        ...

    def advanced(self, amount: int) -> None:
        """So much more of the innermost stage is done."""
        ...

    def reached(self, amount: int) -> None:
        """At least so much of the innermost stage is done."""
        ...

    def ends(self) -> None:
        """The innermost stage is over, done or not."""
        ...


class _Nobody:
    """Hears nothing."""

    def begins(self, what: str, total: int | None, unit: str) -> None:
        """See Listener."""

    def advanced(self, amount: int) -> None:
        """See Listener."""

    def reached(self, amount: int) -> None:
        """See Listener."""

    def ends(self) -> None:
        """See Listener."""


_listening: list[Listener] = [_Nobody()]
"""The last one hears."""


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Tell ``listener``, and nobody else, of all work of this process meanwhile."""
    _listening.append(listener)
    try:
        yield
    finally:
        _listening.remove(listener)


@contextmanager
def stage(what: str, total: int | None, unit: str) -> Iterator[None]:
    """Work in ``total`` of ``unit`` (None: nobody knows how many), told by :func:`advance` and :func:`reached` while it lasts."""
    listener = _listening[-1]
    listener.begins(what, total, unit)
    try:
        yield
    finally:
        listener.ends()


def advance(amount: int = 1) -> None:
    """Tell that so much more of the innermost stage is done."""
    _listening[-1].advanced(amount)


def reached(amount: int) -> None:
    """Tell that at least so much of the innermost stage is done."""
    _listening[-1].reached(amount)


__all__ = ["Listener", "advance", "heard_by", "reached", "stage"]
