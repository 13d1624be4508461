"""Games that an evaluation plays: ladders, Elo, rollouts of positions."""
