"""Choice of the problems of each step: curricula, and problems found while training."""
