"""Checkpoints in the formats of others, and back."""
