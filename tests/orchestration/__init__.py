"""The platform: sensors, ops, jobs and definitions."""
