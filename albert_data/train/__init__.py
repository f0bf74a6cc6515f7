"""A shard folder into batches, a model and checkpoints. Only this room and `interop` import torch."""
