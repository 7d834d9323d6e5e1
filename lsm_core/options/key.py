"""What one option is: its name, type, default and rules. Kept apart so that the lists of keys stay lists."""

from __future__ import annotations

from dataclasses import dataclass

BOOL, DOUBLE, DURATION, ENUM, INT, LONG, MAP, MEMORY, TEXT = (
    "boolean",
    "double",
    "duration",
    "enum",
    "int",
    "long",
    "map",
    "memory",
    "text",
)


@dataclass(frozen=True)
class Key:
    """One option: ``default`` is text as a user would write it (None = unset); ``immutable`` once snapshots exist.

    ``since`` and ``until``: first and last Paimon version that knows it (1.3 is the oldest that Dredge speaks to; None = still
    known). Source class: ``CoreOptions``.
    """

    name: str
    kind: str
    default: str | None = None
    immutable: bool = False
    aliases: tuple[str, ...] = ()
    since: str = "1.3"
    until: str | None = None
