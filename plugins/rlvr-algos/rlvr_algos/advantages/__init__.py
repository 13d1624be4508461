"""Advantages: the credit of each completion, or of each token, from the rewards."""
