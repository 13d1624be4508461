"""Rows for training only, from public sets with a golden design or a testbench."""
