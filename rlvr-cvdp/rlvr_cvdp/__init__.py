"""CVDP: Verilog problems verified by their own cocotb harness."""

__version__ = "0.1.0"
