#!/bin/sh
# Stands where iverilog stood: compiles, notes how that went, and takes the compiled simulation
# away where it could reach beyond the design (scan.py). It never runs then. Nor does what an
# earlier compilation left in the place of one that failed.
discard() {
    simulation=a.out before=
    for word in "$@"; do
        if [ "$before" = -o ]; then simulation=$word; fi
        case $word in -o?*) simulation=${word#-o} ;; esac
        before=$word
    done
    if [ -f "$simulation" ]; then rm -f -- "$simulation"; fi
}
err=/rlvr/out/$$.build
# No compilation waits, unless its text includes a pipe.
timeout "${RLVR_COMPILE_S:-120}" "@REAL@" "$@" 2>"$err"
rc=$?
if [ -s "$err" ]; then cat "$err" >&2; fi
if [ $rc -ne 0 ]; then
    if [ $rc -eq 124 ]; then kind=slow
    elif [ $rc -gt 128 ]; then kind="killed $rc"
    elif grep -q 'error(s) during elaboration' "$err"; then kind=elaboration; else kind=syntax; fi
    echo "$kind" >> /rlvr/out/builds
    discard "$@"
    exit $rc
fi
rc=cold
if [ -p /rlvr/run/ask ]; then
    exec 7<&0 8>&1 # what the worker takes: a shell moves 0 and 1 about while it asks
    set -C
    for n in 0 1 2 3 4 5 6 7; do
        if { command : > /rlvr/run/taken.$n; } 2>/dev/null; then
            echo "scan $$ $n" >| /rlvr/run/ask
            read -r rc < /rlvr/run/reply.$n
            break
        fi
    done
    set +C
    exec 7<&- 8>&-
fi
if [ "$rc" = cold ]; then
    @PYTHON@ -I -S /rlvr/scan.py "$@"
    rc=$?
fi
if [ "$rc" -ne 0 ]; then
    echo refused >> /rlvr/out/builds
    discard "$@"
    exit 96
fi
echo ok >> /rlvr/out/builds
exit 0
