"""Removal of orphan files: list the table's files, find the unreferenced files, and delete these in two phases."""
