"""Converts checkpoints to formats of other libraries, and back."""
