"""Small models of the house, made by `starter_model/make.py`."""
