"""Device and threads of a model, batches over CPU threads, and digests of weights."""
