"""Undo of a compaction: a new COMPACT snapshot restores the replaced files, and no later commit is lost."""
