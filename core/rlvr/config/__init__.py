"""Options: how they are declared, layered, checked and described."""
