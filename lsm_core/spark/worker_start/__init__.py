"""Folder for PYTHONPATH, whose code runs in every Python that a Spark session or server of Dredge starts."""
