"""Launch of a harness: write a problem's tree into a sandbox, run its services."""
