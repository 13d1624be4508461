"""Jobs of the server: making models, passes, sampling, saving and loading weights."""
