"""The version of albert-data."""

__version__ = "0.5.0"
