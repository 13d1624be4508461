"""Progress of a run: its present status for displays, and timed spans for traces."""
