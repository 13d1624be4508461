"""Verification of answers: calls of the reward, the verdict store, second opinions."""
