"""What `rlvr eval --plugin chess` measures besides right and wrong."""
