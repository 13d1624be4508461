"""On-policy distillation: the loss `opd` and its options."""
