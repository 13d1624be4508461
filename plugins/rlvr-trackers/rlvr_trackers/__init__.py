"""Experiment trackers as callbacks: each library is imported only where its callback is chosen."""
