"""Merge engines: deduplicate and first-row choose one version of a key; partial-update and aggregation build a row."""
