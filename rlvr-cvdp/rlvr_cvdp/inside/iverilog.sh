#!/bin/sh
# Stands where iverilog stood: compiles, and says how that went (rlvr_build.py). Where a warm worker
# is (rlvr_zygote.py), a fork of that does it.
if [ -f /src/.rlvr_netlist.json ] && [ -z "$RLVR_IS_NETLIST" ]; then
    # The netlist of the sources is compiled in their place: this is called again with that.
    exec @PYTHON@ -I -S /rlvr/python/rlvr_netlist.py "$0" "$@"
fi
rc=cold
if [ -p /rlvr/run/ask ]; then
    exec 7<&0 8>&1 # what the worker takes: a shell moves 0 and 1 about while it asks
    set -C
    for n in 0 1 2 3 4 5 6 7; do
        if { command : > /rlvr/run/taken.$n; } 2>/dev/null; then
            echo "build $$ $n" >| /rlvr/run/ask
            read -r rc < /rlvr/run/reply.$n
            break
        fi
    done
    set +C
    exec 7<&- 8>&-
fi
if [ "$rc" = cold ]; then exec @PYTHON@ -I -S /rlvr/python/rlvr_build.py "$@"; fi
exit "$rc"
