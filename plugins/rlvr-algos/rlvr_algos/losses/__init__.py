"""The losses of reinforcement learning and of supervised training."""
