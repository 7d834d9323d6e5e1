"""Tests of the running platform, through Dagster and its UI in a headless browser."""
