"""Training on the service: the client, one update, its data and losses, checkpoints, snapshots."""
