"""Prompts: the official form, shorter forms, and truncation to a token budget."""
