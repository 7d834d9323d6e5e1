"""The checks over layouts and data."""
