"""The house: a small world of text, our own, in which agents think, act and are checked."""
