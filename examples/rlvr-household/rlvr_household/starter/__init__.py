"""Data files of the starter: small models for the household, made by `starter_model/make.py`."""
