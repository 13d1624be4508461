"""Folders of sandboxes: created, emptied between two problems, removed afterwards."""
