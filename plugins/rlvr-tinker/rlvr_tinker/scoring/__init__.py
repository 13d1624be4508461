"""Logprobs and likeliest tokens of given sequences, by a model of the service."""
