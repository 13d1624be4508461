"""Algorithms of rlvr: grpo, sft."""
