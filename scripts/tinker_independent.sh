#!/usr/bin/env bash
# Checks rlvr-tinker against what others wrote: a third-party server of the Tinker API, and the
# loops of tinker-cookbook.
#
#   scripts/tinker_independent.sh setup|test|server|cookbook
#
# `setup` makes the two environments that `test` needs (2.2 GB and 1.6 GB, once): they hold other
# versions than .venv, and tinker-cookbook would bring CUDA into it. `server` and `cookbook` are the
# two halves of `test`.
#
#   TINKER_TESTBED      folder of the test bed (default: ../shared/tools/tinker-testbed)
#   TINKER_TESTBED_URL  a server of its kind that runs already, instead
#   TINKER_VENVS        where the environments and compiled code are kept
#                       (default: ~/.cache/rlvr/tinker-independent)
#   PYTHON              interpreter to build on, 3.11 or later (default: python3.11)
#   PIP_*               pip's own variables are passed on
#   PYTEST_ARGS         passed on to pytest
#
# Exit codes: 2 wrong usage, 4 a prerequisite is missing, else pytest's own.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export TINKER_TESTBED="${TINKER_TESTBED:-$(pwd)/../shared/tools/tinker-testbed}"
VENVS="${TINKER_VENVS:-${XDG_CACHE_HOME:-$HOME/.cache}/rlvr/tinker-independent}"
SERVER="$VENVS/server" CLIENT="$VENVS/client"
PYTHON="${PYTHON:-python3.11}"
TESTS=tests/tinker_independent

say() { printf 'tinker-independent: %s\n' "$*"; }
fail() {
  local code=$1
  shift
  printf 'tinker-independent: %s\n' "$@" >&2
  exit "$code"
}

has_testbed() { [ -n "${TINKER_TESTBED_URL:-}" ] || [ -f "$TINKER_TESTBED/tx_launch.py" ]; }

# Makes an environment once; what it holds is written down last, so half a one is made again.
make_venv() {
  local where=$1 wanted=$2
  shift 2
  [ "$(cat "$where/made-of" 2>/dev/null)" = "$wanted" ] && return
  say "making $where ($wanted)"
  command -v "$PYTHON" >/dev/null || fail 4 "no $PYTHON here; give one: PYTHON=/path/to/python3"
  rm -rf "$where"
  "$PYTHON" -m venv "$where"
  "$@"
  printf '%s\n' "$wanted" >"$where/made-of"
}

fill_server() { "$SERVER/bin/pip" install -q torch==2.13.0 "skyrl[tinker,jax]==0.3.0"; }

# The cookbook asks for a tml-renderers that the index does not have, and pip would take an old
# cookbook and CUDA's torch instead: so it comes without its dependencies, which are named here.
fill_client() {
  local pip="$CLIENT/bin/pip"
  "$pip" install -q torch==2.13.0 tinker==0.38.0
  "$pip" install -q --no-deps tinker-cookbook==0.6.1
  "$pip" install -q aiohttp blobfile chz cloudpickle datasets pillow pyrage safetensors \
    termcolor tiktoken tqdm tml-renderers==0.2.1
  "$pip" install -q starlette uvicorn pytest pytest-timeout hypothesis
}

setup() {
  if [ -z "${TINKER_TESTBED_URL:-}" ]; then
    make_venv "$SERVER" "skyrl 0.3.0, torch 2.13.0" fill_server
  fi
  make_venv "$CLIENT" "tinker 0.38.0, tinker-cookbook 0.6.1, torch 2.13.0" fill_client
  install_ours
}

# Again only where a pyproject.toml has changed (entry points, dependencies): the rest is editable.
install_ours() {
  local parts=(. plugins/rlvr-algos plugins/rlvr-torch plugins/rlvr-tinker plugins/rlvr-tinker-server plugins/rlvr-tinker-cookbook rlvr-cvdp rlvr-chess)
  local part wanted editable=()
  for part in "${parts[@]}"; do editable+=(-e "$part"); done
  wanted="$(pwd) $(cat "${parts[@]/%//pyproject.toml}" | sha256sum)"
  [ "$(cat "$CLIENT/ours" 2>/dev/null)" = "$wanted" ] && return
  say "installing our distributions, editable"
  "$CLIENT/bin/pip" install -q "${editable[@]}"
  printf '%s\n' "$wanted" >"$CLIENT/ours"
}

check() { "$CLIENT/bin/python" -m pytest ${PYTEST_ARGS:-} "$@"; }

need_testbed() {
  has_testbed || fail 4 "no test bed at $TINKER_TESTBED" \
    "give its folder: TINKER_TESTBED=FOLDER make test-tinker-independent" \
    "or a running server of the Tinker API: TINKER_TESTBED_URL=http://127.0.0.1:PORT"
}

server() {
  export TINKER_TESTBED_PYTHON="$SERVER/bin/python" TINKER_TESTBED_RUN="$VENVS/run"
  check "$TESTS/test_contract.py" "$TESTS/test_runs.py"
}

cookbook() { check plugins/rlvr-tinker-cookbook/tests "$TESTS/test_cookbook.py"; }

case "${1:-}" in
  setup) setup ;;
  test)
    need_testbed
    setup
    cookbook
    server
    ;;
  server)
    need_testbed
    setup
    server
    ;;
  cookbook)
    TINKER_TESTBED_URL="${TINKER_TESTBED_URL:-none}" setup
    cookbook
    ;;
  *) fail 2 "usage: scripts/tinker_independent.sh setup|test|server|cookbook" ;;
esac
