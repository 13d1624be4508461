"""Files of a run, read and written: its directory, state, trajectories, lineage and lock."""
