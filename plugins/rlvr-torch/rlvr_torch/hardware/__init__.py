"""Primitives that differ by device, with the plain version of each."""
