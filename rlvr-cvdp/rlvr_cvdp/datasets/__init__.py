"""Data sets: rows and files made into problems, their splits, limits and curricula."""
