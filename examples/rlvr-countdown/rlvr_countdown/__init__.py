"""Countdown: reach the target with each number once."""
