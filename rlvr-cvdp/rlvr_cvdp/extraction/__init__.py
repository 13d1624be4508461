"""From a model's message to the files that it means: blocks, definitions, and whose they are."""
