"""Are two designs equal? Netlists by yosys, proofs, compiled forms, a known right design."""
