"""Chess for rlvr: choose a move and say what it is worth; say what a move does to the board."""
