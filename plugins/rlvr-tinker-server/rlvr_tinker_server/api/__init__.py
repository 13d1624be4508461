"""The HTTP side of the server: requests, endpoints, reports."""
