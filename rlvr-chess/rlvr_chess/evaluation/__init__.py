"""Metrics of `rlvr eval --plugin chess` besides right and wrong."""
