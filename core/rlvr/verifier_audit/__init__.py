"""Audit of a verifier: answers whose verdict is known are put to it, and findings are kept."""
