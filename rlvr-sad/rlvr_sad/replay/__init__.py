"""Replay of recorded trajectories: token sequences of a policy, cut to its context."""
