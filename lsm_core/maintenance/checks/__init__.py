"""Checks of a table's invariants from its metadata and, in bounded samples, from its rows; nothing is changed.

Each module holds related checks; `checking` lists all checks with the tables to which each applies.
"""
