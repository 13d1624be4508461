"""Cache of teachers' answers about recorded trajectories, in files named by content."""
