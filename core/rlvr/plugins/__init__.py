"""Plugins: discovery, loading, typed calls of their hooks, and the list of what is installed."""
