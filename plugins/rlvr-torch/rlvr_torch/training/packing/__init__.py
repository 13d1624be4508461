"""Micro-batches as rows without padding, and the attention of their sequences."""
