"""Toolchain of verification: simulators, helper programs and cocotb stacks."""
