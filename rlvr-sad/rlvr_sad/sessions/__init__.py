"""Read trajectories from files: one record at a time, in bounded memory, refusals counted."""
