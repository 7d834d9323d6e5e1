"""Removal of orphan files: list the table's files, find the unreferenced files, and record these for deletion."""
