"""A training run: its state, its loop of steps, and what it writes and prints."""
