#!/bin/sh
# Stands where vvp stood: simulates, and says what the simulation reported (rlvr_simulate.py). Where
# a warm worker is (rlvr_zygote.py), a fork of that simulates. The results that the harness reads are
# emptied before: what an earlier launch left there is not this one's.
results=${COCOTB_RESULTS_FILE:-results.xml}
if [ -f "$results" ]; then { command : > "$results"; } 2>/dev/null; fi
rc=cold
if [ -p /rlvr/run/ask ]; then
    exec 7<&0 8>&1 # what the worker takes: a shell moves 0 and 1 about while it asks
    set -C
    for n in 0 1 2 3 4 5 6 7; do
        if { command : > /rlvr/run/taken.$n; } 2>/dev/null; then
            echo "vvp $$ $n" >| /rlvr/run/ask
            read -r rc < /rlvr/run/reply.$n
            break
        fi
    done
    set +C
    exec 7<&- 8>&-
fi
if [ "$rc" = cold ]; then exec @PYTHON@ -I -S /rlvr/python/rlvr_simulate.py "$@"; fi
exit "$rc"
