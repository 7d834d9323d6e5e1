"""Tests of the base of the platform: names, policies, resources and metadata."""
