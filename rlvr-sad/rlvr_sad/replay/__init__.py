"""Recorded trajectories as token sequences of a policy: laid out, cut to its context, replayed."""
