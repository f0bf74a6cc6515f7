"""Writes the rows of a shard folder in the formats of other trainers. It needs none of their libraries."""

FORMATS = ("parquet", "mds")
