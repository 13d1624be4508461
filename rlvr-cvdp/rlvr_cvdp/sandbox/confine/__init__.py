"""Limits of a sandboxed process: its system calls, devices and /proc."""
