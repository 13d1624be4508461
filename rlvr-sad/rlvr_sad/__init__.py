"""Structured agent distillation: agent trajectories and the spans they are made of."""

__version__ = "0.1.0"
