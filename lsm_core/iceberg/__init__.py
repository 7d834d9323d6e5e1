"""Iceberg metadata of Paimon tables: its location, its state, and its writing after each commit.

Iceberg readers find a table's raw data files through this metadata (`metadata.iceberg.storage`). The package opens no
data files and publishes no snapshots. Begin with `writing`, and for reading with `state`.
"""

from __future__ import annotations
