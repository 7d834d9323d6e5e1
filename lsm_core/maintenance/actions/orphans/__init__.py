"""Removal of orphan files: unreferenced files of crashes and other engines, found by listing, deleted in two phases."""
