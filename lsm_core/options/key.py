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
    """One option: ``default`` is text as a user would write it (None = unset); ``immutable`` once snapshots exist."""

    name: str
    kind: str
    default: str | None = None
    immutable: bool = False
    aliases: tuple[str, ...] = ()
