"""Reads the files of a run and shows them, as a page or as text. Imports no torch."""
