"""Benchmarks: each compares us with a limit measured in the same alternating run, never with a remembered number."""

from __future__ import annotations

import lsm_core as lsm_core  # before anything loads Arrow: the engine tells its allocator what to keep
