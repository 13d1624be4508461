"""Verdicts on answers: the reward, its stages, partial credit, the second judge."""
