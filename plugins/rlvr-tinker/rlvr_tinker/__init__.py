"""The Tinker service as a backend of rlvr."""
