"""Tells whether two designs are equal: netlists by yosys, proofs, compiled forms, test benches."""
