"""What the benchmarks of the verifier share: answers, and the ways to judge them."""
