"""Data files of the starter: its problems and its model, made by `starter_model/`."""
