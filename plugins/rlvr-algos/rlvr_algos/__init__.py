"""Algorithms of rlvr: losses, advantages, and what goes together."""
