"""Games between movers: a policy against itself, an engine, or a player at random."""
