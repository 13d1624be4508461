"""KV caches of decoding: shared prompts, a ring of generated tokens, or one cache a row."""
