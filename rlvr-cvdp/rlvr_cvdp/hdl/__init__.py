"""Verilog sources, read without a simulator: names, ports, clocks."""
