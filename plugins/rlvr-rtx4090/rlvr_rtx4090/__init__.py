"""Backend `rtx4090`: rlvr-torch on one NVIDIA card, with values planned for its memory."""
