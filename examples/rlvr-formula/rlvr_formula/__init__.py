"""Formulas over x: a verifier that can be cheated, and a second judge that notices."""
