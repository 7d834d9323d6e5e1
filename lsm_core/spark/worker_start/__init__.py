"""A folder for PYTHONPATH: what it holds is run by every Python that starts below a Spark session or server of Dredge's."""
