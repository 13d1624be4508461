"""Answers of a policy: parsed into files, or scored as text."""
