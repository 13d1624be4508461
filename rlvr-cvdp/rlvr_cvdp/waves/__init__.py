"""Waveforms of an answer's simulations, for a person to look at."""
