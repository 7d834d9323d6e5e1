"""Checks: what must hold of a table, found from its metadata and, in bounded samples, from its rows; nothing is changed.

One module an idea; `checking` lists them all, with the tables that each is for.
"""
