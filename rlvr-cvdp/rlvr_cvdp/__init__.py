"""CVDP: Verilog problems verified by their own cocotb harness."""

__version__ = "0.1.0"
DATA = (
    "hf download nvidia/cvdp-benchmark-dataset --repo-type dataset --local-dir cvdp "
    "(hf comes with huggingface_hub)"
)
"""Fetches the published problems."""
