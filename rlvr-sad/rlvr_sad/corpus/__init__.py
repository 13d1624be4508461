"""Recorded trajectories as problems of a run: where each stands, and on which side of the split."""
