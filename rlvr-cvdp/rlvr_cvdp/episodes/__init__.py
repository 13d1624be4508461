"""Episodes of several turns: debugging with the tools' messages, and an agent that edits files."""
