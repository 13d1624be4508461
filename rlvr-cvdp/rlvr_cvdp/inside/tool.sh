#!/bin/sh
# Stands where yosys and verilator stood: notes what is asked of them (rlvr_tool.py).
exec @PYTHON@ -I -S /rlvr/python/rlvr_tool.py "${0##*/}" "$@"
