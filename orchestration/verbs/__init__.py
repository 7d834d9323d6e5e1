"""Verbs of the `dredge` command that need the platform, registered in the entry-point group ``dredge.verbs``.

Verbs that need only the engine are in `lsm_core.cli.verbs`. Begin with `policies` or `demo`.
"""
