"""Models of the transformers library, used as a `Net`."""
