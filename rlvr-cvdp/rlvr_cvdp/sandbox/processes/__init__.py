"""Sandboxed processes while they run: resource use, output, and how they are stopped."""
