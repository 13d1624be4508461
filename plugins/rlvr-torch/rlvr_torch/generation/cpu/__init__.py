"""Fast decoding on a CPU: packed weights and matrix products for few rows."""
