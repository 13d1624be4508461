"""Local PyTorch backend of rlvr."""
