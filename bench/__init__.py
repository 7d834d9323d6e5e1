"""Benchmarks: each compares us with a limit measured in the same alternating run, never with a remembered number."""
