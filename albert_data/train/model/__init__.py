"""The model: its layers and heads, its size and cost, the number format, checkpoints, and scores of sentences."""
