"""Assets: two per table of any warehouse, the data (written by writers) and the layout (compacted by maintenance)."""

from __future__ import annotations

from assets.table_assets import data_asset, layout_asset
