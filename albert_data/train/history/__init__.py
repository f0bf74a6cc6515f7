"""The files of runs, shown as a page or as text. Only `layers.py` imports torch."""
