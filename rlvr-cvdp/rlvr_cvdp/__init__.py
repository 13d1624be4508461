"""CVDP: Verilog problems verified by their own cocotb harness."""

__version__ = "0.1.0"
DATA = (
    "pip install huggingface_hub && "
    "hf download nvidia/cvdp-benchmark-dataset --repo-type dataset --local-dir cvdp"
)
"""Fetches the published problems."""
