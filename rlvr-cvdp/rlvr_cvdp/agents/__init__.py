"""The official agentic protocol: an agent's own container edits the files of a problem."""
