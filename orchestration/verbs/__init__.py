"""Verbs of the `dredge` command that need the platform; the command finds them through the entry-point group ``dredge.verbs``."""
