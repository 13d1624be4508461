"""Typing rules: each cuts texts of one style into typed spans (reasoning, action, ...)."""
