"""Stockfish: found, identified, and run in a pool of processes whose results are repeatable."""
