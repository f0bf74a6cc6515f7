"""Reports: HTML pages that open from the disk. `inspect/` makes them from shards, `runs/` from training runs.

A page fetches nothing. Its content security policy admits its own style sheet and script, by hash, and nothing else,
so style attributes do not work either.
"""
