"""Divergences between distributions: one family of formulas a file, with the gradients."""
