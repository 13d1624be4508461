"""Adapters: each reads the records of one family of formats into structured trajectories."""
