"""Caches of decoding: keys of shared prompts, keys of each row's own tokens, states of rows."""
