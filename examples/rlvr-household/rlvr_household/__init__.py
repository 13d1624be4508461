"""The household environment: a small text world for agents, with a reward that checks goals."""
