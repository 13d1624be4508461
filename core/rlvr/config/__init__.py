"""Options: declared by parts, resolved in layers, checked, and shown with their origin."""
