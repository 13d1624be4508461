"""From files to trajectories: records one at a time, in bounded memory, with every reason kept."""
