"""What a teacher said of recorded trajectories, kept in files by content."""
