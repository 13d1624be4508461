"""The training loop, from problems to updates, and the files and messages of a training run."""
