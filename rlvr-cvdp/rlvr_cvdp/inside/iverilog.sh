#!/bin/sh
# Stands where iverilog stood: compiles, notes how that went, and takes the compiled simulation
# away where it could reach beyond the design (scan.py). It never runs then.
err=/rlvr/out/iverilog.$$
# No compilation waits, unless its text includes a pipe.
timeout "${RLVR_COMPILE_S:-120}" "@REAL@" "$@" 2>"$err"
rc=$?
cat "$err" >&2
file=a.out
want=
for arg in "$@"; do
    if [ -n "$want" ]; then file=$arg; want=; continue; fi
    case $arg in
        -o) want=1 ;;
        -o*) file=${arg#-o} ;;
    esac
done
if [ $rc -ne 0 ]; then
    if [ $rc -eq 124 ]; then kind=slow
    elif [ $rc -gt 128 ]; then kind="killed $rc"
    elif grep -q 'error(s) during elaboration' "$err"; then kind=elaboration; else kind=syntax; fi
    echo "$kind" >> /rlvr/out/builds
    rm -f "$err"
    exit $rc
fi
rm -f "$err"
# Only lines that the first pattern finds can matter; most designs have none but plain ones.
look='"\$|%force|%vpi|\.sfunc'
plain='^ *%vpi_(call|func)[a-z0-9/]* [0-9]+ [0-9]+ "\$(display|error|write|finish|random|urandom|time)"'
if [ -f "$file" ] && grep -aE "$look" "$file" | grep -aqvE "$plain"; then
    if ! @PYTHON@ -I -S /rlvr/scan.py "$file" "$@"; then
        rm -f "$file"
        echo refused >> /rlvr/out/builds
        exit 96
    fi
fi
echo ok >> /rlvr/out/builds
exit 0
