"""The Tinker service as a backend of rlvr, and the Tinker API on your own machine."""
