"""Verbs of the `dredge` command that need the platform, registered in the entry-point group ``dredge.verbs``."""
