"""Generation of completions: the engine, its decode batches, token sampling, stop strings."""
