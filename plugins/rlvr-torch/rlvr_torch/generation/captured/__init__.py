"""Decoding in static buffers: passes that a GPU captures once and replays, for the whole run."""
