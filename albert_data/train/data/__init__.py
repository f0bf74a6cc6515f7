"""Shards as batches on the device: the order of rows, new masks, tensors; and the pairs of sentences to score."""
