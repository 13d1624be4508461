"""Action-value tables: stored evaluations of positions by the engine."""
