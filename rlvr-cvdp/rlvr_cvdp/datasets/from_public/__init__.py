"""Rows for training only, made of public sets with a golden design or a testbench."""
