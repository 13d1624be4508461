"""CVDP: Verilog problems verified by their own cocotb harness."""
