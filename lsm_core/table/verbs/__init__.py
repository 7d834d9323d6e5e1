"""The verbs of the Table facade, by what they are for; each delegates to the room that does it (api.md)."""

from __future__ import annotations

from lsm_core.table.verbs.changing import Changing
from lsm_core.table.verbs.maintaining import Maintaining
from lsm_core.table.verbs.reading import Reading

__all__ = ["Changing", "Maintaining", "Reading"]
