"""Evaluation of models: pass@k, comparisons, contamination, evaluations saved on disk."""
