"""Questions about a position: their kinds, their wording, and the right answers."""
