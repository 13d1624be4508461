"""Styles of plain text: each finds its own marks and cuts a text into typed pieces."""
