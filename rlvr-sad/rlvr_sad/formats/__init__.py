"""Trajectory formats: one adapter for each family, which reads its records."""
