"""Assembly of a run: resolve names and options, build the parts, open and close them."""
