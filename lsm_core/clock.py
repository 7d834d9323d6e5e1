"""The only source of the current time, so that tests, demos and Spark tasks share one clock."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from lsm_core.errors import CorruptFile

_MAX_BYTES: Final = 64
_NUMBER: Final = re.compile(rb"\s*[0-9]{1,18}\s*")
_LAST_MS: Final = 253_402_300_799_999
"""Last millisecond of the year 9999, the end of the calendar of dates."""
_ACCEPTED = "'system', 'fixed:<epoch ms>' or 'file:<path>'"


@runtime_checkable
class Clock(Protocol):
    """A clock with epoch milliseconds; ``to_spec`` lets another process rebuild it."""

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        ...

    def to_spec(self) -> str:
        """Return the text from which ``clock_from`` rebuilds this clock."""
        ...


@dataclass(frozen=True)
class SystemClock:
    """The machine's wall clock."""

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def to_spec(self) -> str:
        """Return ``"system"``."""
        return "system"


@dataclass
class FixedClock:
    """A clock for tests, whose time changes only by :meth:`advance`.

    Attributes:
        ms: the time (epoch ms).
    """

    ms: int

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return self.ms

    def advance(self, ms: int) -> None:
        """Advance the clock by ``ms`` milliseconds."""
        self.ms += ms

    def to_spec(self) -> str:
        """Return ``"fixed:<ms>"``."""
        return f"fixed:{self.ms}"


@dataclass(frozen=True)
class FileClock:
    """A clock that reads the time from a file with one decimal number, so that all processes of a demo share it.

    Attributes:
        path: path of the file, which contains epoch milliseconds.
    """

    path: str

    def now_ms(self) -> int:
        """Return epoch milliseconds.

        Raises:
            OSError: the file cannot be read.
            CorruptFile: the file contains no number, or a number outside the calendar; the message names the file.
        """
        with Path(self.path).open("rb") as file:
            text = file.read(_MAX_BYTES)
        ms = int(text) if _NUMBER.fullmatch(text) else None
        if ms is None or ms > _LAST_MS:
            shown = text[:40].decode("ascii", "backslashreplace")
            raise CorruptFile(
                self.path, f"the clock file holds {shown!r}, not epoch milliseconds; write the time as one number"
            )
        return ms

    def set(self, ms: int) -> None:
        """Write the shared time (epoch ms) to the file; the file is replaced by a rename, never seen half-written."""
        target = Path(self.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary_file = target.with_name(target.name + ".new")
        temporary_file.write_text(str(ms), "ascii")
        temporary_file.replace(target)

    def to_spec(self) -> str:
        """Return ``"file:<path>"``."""
        return f"file:{self.path}"


def clock_from(spec: str | Clock | None) -> Clock:
    """Return a clock for its text form.

    Args:
        spec: the text form, a clock, or None for the system clock.

    Returns:
        The clock.

    Raises:
        ValueError: the text is invalid; the message lists the accepted forms.
    """
    if spec is None:
        return SystemClock()
    if not isinstance(spec, str):
        return spec
    kind, _, argument = spec.partition(":")
    if spec == "system":
        return SystemClock()
    if kind == "file" and argument:
        return FileClock(argument)
    if kind == "fixed":
        try:
            return FixedClock(int(argument))
        except ValueError as error:
            raise ValueError(f"clock cannot be {spec!r}; accepted: {_ACCEPTED}") from error
    raise ValueError(f"clock cannot be {spec!r}; accepted: {_ACCEPTED}")


def why_silent(clock: Clock) -> str | None:
    """Return the reason why a clock has no time (file missing, or without a number), or None if it has a time."""
    try:
        clock.now_ms()
    except OSError as error:
        return f"{error.strerror or type(error).__name__}"
    except CorruptFile as error:
        return str(error)
    return None


def to_spec(clock: Clock) -> str:
    """Return the text from which `clock_from` rebuilds ``clock``."""
    return clock.to_spec()


def local_offset_ms(now_ms: int) -> int:
    """Return the offset of this machine's time zone from UTC at ``now_ms`` (ms), including summer time."""
    return time.localtime(now_ms // 1000).tm_gmtoff * 1000


def written_span(span_ms: int) -> str:
    """Return a time span as in options, in the largest unit that divides it: "7d", "36h", "90s", "1500ms"."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if span_ms and span_ms % size == 0:
            return f"{span_ms // size}{unit}"
    return f"{span_ms}ms"


def utc_text(epoch_ms: int | None) -> str:
    """Return epoch ms as UTC text: "2024-01-31 12:00:00", "-" for None, or the number if it is outside the calendar."""
    if epoch_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return f"{epoch_ms} ms"
