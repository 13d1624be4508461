"""Chess for people: boards and games as text, and a game against a model."""
