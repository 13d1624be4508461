"""Rewards of answers, and the second judge that searches deeper."""
