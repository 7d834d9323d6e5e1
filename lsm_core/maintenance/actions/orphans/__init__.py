"""Removal of orphan files: find unreferenced files of crashes or other engines by listing; delete in two phases."""
