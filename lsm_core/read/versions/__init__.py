"""Which version of a table a read is about: by its arguments, or by the table's options."""

from __future__ import annotations

from lsm_core.read.versions.startup import Mode, Startup, millis, startup
from lsm_core.read.versions.time_travel import Version, newest_compacted, resolve, with_schema

__all__ = ["Mode", "Startup", "Version", "millis", "newest_compacted", "resolve", "startup", "with_schema"]
