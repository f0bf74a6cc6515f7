"""Training runs: their files read back, what the figures say, and a page or a text of them. Imports no torch."""
