"""Merge engines: what the versions of one key become. Deduplicate and first-row choose a version, the others build a row."""
