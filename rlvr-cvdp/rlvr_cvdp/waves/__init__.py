"""Waveforms of simulations: written for a person to look at, and read for comparisons."""
