"""Additions to rewards and losses: length penalties, KL, importance-weight corrections."""
