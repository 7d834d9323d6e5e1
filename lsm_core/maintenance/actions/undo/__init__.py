"""Undo of a compaction: the replaced files return in a new COMPACT snapshot, and no later commit is lost."""
