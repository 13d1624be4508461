"""Games of a policy against itself, an engine, or a random player."""
