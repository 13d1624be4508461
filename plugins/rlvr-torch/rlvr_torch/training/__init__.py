"""Training: micro-batches, packing, logprobs, loss and gradient, optimiser, checkpoint."""
