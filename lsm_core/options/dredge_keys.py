"""Options that only Dredge knows, all named ``dredge.*``; an unknown one is an error, because nobody else reads them."""

from __future__ import annotations

from lsm_core.options.key import DURATION, ENUM, INT, MEMORY, Key

KEYS: tuple[Key, ...] = (
    Key("dredge.compaction.order-sensitive", ENUM, "closed"),
    Key("dredge.compaction.piece-size", MEMORY, "32 mb"),
    Key("dredge.delete-mode", ENUM, "two-phase"),
    Key("dredge.merge-budget", MEMORY, "256 mb"),
    Key("dredge.read.threads", INT),
    Key("dredge.tombstone-retention", DURATION, "0 ms"),
    Key("dredge.trash-grace", DURATION, "24 h"),
    Key("dredge.trash-grace-expiry", DURATION, "1 h"),
)
