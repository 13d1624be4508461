"""Recorded trajectories as problems of a run: where each is stored, and its split."""
