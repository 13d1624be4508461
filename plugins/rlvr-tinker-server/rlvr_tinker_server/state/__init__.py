"""State that all requests share: sessions, queues, pending results, checkpoints."""
