"""What people see of chess: boards, games, and a game against a model in the terminal."""
