"""HTTP client of one server: address, requests, retries, and what a refusal means."""
