"""Algorithms of rlvr: losses, advantages, and the combinations that make an algorithm."""
