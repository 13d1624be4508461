"""Find code in a model's message: blocks, the modules they define, the file each belongs to."""
