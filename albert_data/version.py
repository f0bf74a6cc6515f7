"""The version of albert-data."""

__version__ = "0.4.0"
