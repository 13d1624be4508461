"""Audit of a verifier: it judges answers whose verdict is known; the findings are saved."""
