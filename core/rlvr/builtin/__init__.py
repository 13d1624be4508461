"""The core's own plugin: the built-in parts, offered through the same hooks as any plugin's."""
