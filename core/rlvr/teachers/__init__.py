"""Requests to teachers: routed to one of several, answers checked, tokenizers compared."""
