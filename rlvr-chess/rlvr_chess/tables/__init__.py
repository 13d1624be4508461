"""Action-value tables: what the engine said of positions, kept so that nobody asks it twice."""
