"""Calls of parts, checked: an exception or a wrong result becomes an error that names the part."""
