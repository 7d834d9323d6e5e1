"""Verbs of the command line, one module for each subject: reading, maintaining, tags, branches, trash, SQL.

A verb is registered in `lsm_core.cli.app`. Options that several verbs share are in `common`.
"""
