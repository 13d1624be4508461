"""Shared by the benchmarks of the verifier: answers, and ways to judge them."""
