"""`rlvr tinker-server`: the Tinker API, served by the nets of rlvr-torch."""
