"""Nets of the server: adapters, optimiser, losses, sampling, scoring."""
