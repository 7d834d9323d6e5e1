"""Assets: two per table, made by a factory over any warehouse: the data (observed) and its layout (what maintenance makes)."""

from __future__ import annotations

from assets.layout import layout_asset
from assets.tables import data_asset

__all__ = ["data_asset", "layout_asset"]
