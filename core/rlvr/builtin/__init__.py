"""The core's own plugin: it offers its parts through the same hooks as anyone."""
