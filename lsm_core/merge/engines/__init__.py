"""Merge engines: deduplicate and first-row choose one version of a key, the others build a new row."""
