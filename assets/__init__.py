"""Assets: two per table, made by a factory over any warehouse: the data (which writers make) and its layout (what maintenance makes)."""

from __future__ import annotations

from assets.table_assets import data_asset, layout_asset

__all__ = ["data_asset", "layout_asset"]
