"""Student and teacher distributions compared: dense, top k and the rest, or hidden states."""
