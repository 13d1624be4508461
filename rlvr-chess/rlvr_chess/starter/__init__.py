"""The starter: positions with tables, and a small model."""
