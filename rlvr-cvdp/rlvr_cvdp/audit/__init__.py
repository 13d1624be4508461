"""Audit of CVDP problems: mutants, proofs and other answers whose verdict is known."""
