#!/usr/bin/env bash
# Makes the virtual environment and installs what `make run` or `make test` needs.
#
#   scripts/setup.sh run|dev|rootfs
#
# `rootfs` is `dev` plus the Debian 13 root for the sandbox, which `dev` builds on a build server
# (CI=true) only.
#
# Idempotent: a second call finds nothing to do and returns at once. Each step is one line on
# standard output; each Debian package is named before it is installed. `make` calls this; the
# variables below can be given to make as well.
#
#   PYTHON      interpreter to build on (3.11 or later; default: VENV's, or the first that fits)
#   VENV        where the environment goes (default: .venv)
#   TORCH_SPEC  what pip is asked for (default: the CPU build, or the plain one where a GPU is)
#   PIP_*       pip's own variables are passed on (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, ...)
#
# Exit codes: 2 wrong usage, 4 a prerequisite is missing and cannot be installed from here.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

MODE="${1:-}"
VENV="${VENV:-.venv}"
TORCH_VERSION=2.13.0
STARTED=$SECONDS

say() { printf 'setup: %s\n' "$*"; }
fail() {
  local code=$1
  shift
  printf 'setup: %s\n' "$@" >&2
  exit "$code"
}

WANTS_ROOTFS=false
case "$MODE" in
  run | dev) ;;
  rootfs) MODE=dev WANTS_ROOTFS=true ;;
  *) fail 2 "usage: scripts/setup.sh run|dev|rootfs" ;;
esac
if [ "$MODE" = dev ] && [ "${CI:-}" = true ]; then WANTS_ROOTFS=true; fi

# --- the interpreter ------------------------------------------------------------------------

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local name
  if [ -n "${PYTHON:-}" ]; then
    command -v "$PYTHON" >/dev/null || fail 4 "PYTHON=$PYTHON was not found" \
      "name one that is installed, or its path: make ... PYTHON=python3.11"
    is_new_enough "$PYTHON" || fail 4 "PYTHON=$PYTHON is no Python 3.11 or later"
    command -v "$PYTHON"
    return
  fi
  for name in "$VENV/bin/python" python3 python3.11 python3.12 python3.13; do
    if command -v "$name" >/dev/null && is_new_enough "$name"; then
      command -v "$name"
      return
    fi
  done
  fail 4 "no Python 3.11 or later was found" \
    "found: $(python3 --version 2>&1 || echo none)" \
    "install one (Debian: apt-get install python3) or give its path: make PYTHON=/path/to/python3"
}

# --- what comes from Debian -----------------------------------------------------------------

# cocotb runs Python inside the simulator, so the interpreter's shared library must be loadable.
has_shared_libpython() {
  "$1" - 2>/dev/null <<'PY'
import ctypes, pathlib, sys, sysconfig

name = sysconfig.get_config_var("INSTSONAME") or ""
if not name.endswith(".a"):
    beside = pathlib.Path(sysconfig.get_config_var("LIBDIR") or "/") / name
    ctypes.CDLL(str(beside) if beside.exists() else name)
else:
    ctypes.CDLL(f"libpython3.{sys.version_info.minor}.so.1.0")
PY
}

# One "package: why" line for each thing that is missing.
missing_packages() {
  local python=$1 pair version
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  for pair in iverilog:iverilog verilator:verilator yosys:yosys bwrap:bubblewrap; do
    command -v "${pair%%:*}" >/dev/null || echo "${pair#*:}: there is no '${pair%%:*}'"
  done
  if [ ! -x "$VENV/bin/python" ] && ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "python$version-venv: $python cannot make virtual environments"
  fi
  has_shared_libpython "$python" || echo "libpython$version: cocotb needs the shared library of $python"
}

# The same for what only some tests need: Docker, a second Debian to run simulators of, and the
# chess engine (Debian keeps it where only a games player's PATH looks).
missing_extras() {
  command -v dockerd >/dev/null || [ -S /var/run/docker.sock ] || echo "docker.io: there is no 'dockerd'"
  command -v debootstrap >/dev/null || echo "debootstrap: there is no 'debootstrap'"
  command -v stockfish >/dev/null || [ -x /usr/games/stockfish ] || echo "stockfish: there is no 'stockfish'"
}

# Prints what to put before a command that needs root; fails where nothing would help.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    return
  elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    echo sudo
  else
    return 1
  fi
}

# On a build server they must be there; elsewhere the tests that need them are skipped aloud.
install_extras() {
  local lines
  lines=$(missing_extras)
  if [ -z "$lines" ]; then return; fi
  if [ "${CI:-}" = true ] || [ "$WANTS_ROOTFS" = true ]; then
    install_packages "$lines"
  else
    (install_packages "$lines") || say "  going on without: tests that need these will be skipped"
  fi
}

# Kept in rlvr's cache folder, so that it is built once on a machine.
build_rootfs() {
  local folder root
  folder=$("$VENV/bin/python" -c 'from rlvr_cvdp.images.recipe import rootfs_dir; print(rootfs_dir())')
  if [ -f "$folder/opt/cvdp/manifest.json" ]; then
    say "the root for the sandbox is in $folder"
    return
  fi
  root=$(as_root) || fail 4 "building the root for the sandbox needs root. Let an administrator run:" \
    "  $PWD/$VENV/bin/rlvr cvdp build-rootfs --out $folder"
  say "building the root for the sandbox (rlvr cvdp build-rootfs)"
  mkdir -p "$(dirname "$folder")"
  must $root "$VENV/bin/rlvr" cvdp build-rootfs --out "$folder" >>"$VENV/setup.log" 2>&1
}

install_packages() {
  local lines=$1 packages as_root="" manual
  packages=$(cut -d: -f1 <<<"$lines" | tr '\n' ' ')
  packages=${packages% }
  while read -r line; do say "missing Debian package $line"; done <<<"$lines"
  manual="apt-get update && apt-get install -y --no-install-recommends $packages"
  if ! command -v apt-get >/dev/null; then
    fail 4 "this is no Debian system: install the packages above with your own package manager," \
      "then call make again"
  fi
  as_root=$(as_root) || fail 4 \
    "these need root, and there is neither root nor sudo. Let an administrator run:" \
    "  $manual" "then call make again"
  say "installing with apt-get: $packages"
  mkdir -p "$VENV"
  if ! { $as_root apt-get update -q &&
    $as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -q --no-install-recommends $packages; } >"$VENV/apt.log" 2>&1; then
    tail -20 "$VENV/apt.log" >&2
    fail 4 "apt-get failed (its output: $VENV/apt.log). Try by hand:" "  $manual"
  fi
}

# --- what comes from the package index ------------------------------------------------------

# What pip was told of indexes, as uv's variables. Of pip's sections a later one here outranks those
# before; lists may stand on lines of their own.
uv_settings() {
  local all section
  all=$("$VENV/bin/python" -m pip config list | sed 's/\\n/ /g')
  for section in global install :env:; do
    sed -nE -e "s/^$section\.index-url='(.*)'$/UV_DEFAULT_INDEX=\1/p" \
      -e "s/^$section\.extra-index-url='(.*)'$/UV_INDEX=\1/p" -e "s/^$section\.constraint='(.*)'$/UV_CONSTRAINT=\1/p" \
      -e "s/^$section\.find-links='(.*)'$/UV_FIND_LINKS=\1/p" -e "s/^$section\.cert='(.*)'$/SSL_CERT_FILE=\1/p" \
      -e "s/^$section\.trusted-host='(.*)'$/UV_INSECURE_HOST=\1/p" -e "s/^$section\.proxy='(.*)'$/ALL_PROXY=\1/p" \
      -e "s/^$section\.no-index='(.*)'$/UV_NO_INDEX=\1/p" <<<"$all"
  done
}

# Bytecode is left to the first import: compiling all of torch costs more than the run saves. uv
# needs a third of pip's time; what it cannot install, or where the index has no uv, is pip's.
pip_install() {
  local settings
  mapfile -t settings < <(uv_settings)
  # exported, not given to env: an index may hold a password, and all can read a process's words
  (export UV_INDEX_STRATEGY=unsafe-best-match "${settings[@]}" && "$VENV/bin/uv" pip install \
    --python "$VENV/bin/python" --no-sources "$@") >>"$VENV/setup.log" 2>&1 ||
    "$VENV/bin/python" -m pip install --no-input --no-compile --disable-pip-version-check \
      --progress-bar off "$@" >>"$VENV/setup.log" 2>&1
}

must() {
  "$@" || {
    tail -25 "$VENV/setup.log" >&2
    fail 4 "the step above failed (whole output: $VENV/setup.log)"
  }
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }

install_torch() {
  if [ -n "${TORCH_SPEC:-}" ]; then
    say "installing $TORCH_SPEC (TORCH_SPEC)"
    must pip_install "$TORCH_SPEC"
  elif has_gpu; then
    say "installing torch==$TORCH_VERSION (a GPU was found)"
    must pip_install "torch==$TORCH_VERSION"
  else
    say "installing torch==$TORCH_VERSION, CPU build (no GPU was found)"
    if ! pip_install "torch==$TORCH_VERSION+cpu" &&
      ! pip_install --retries 1 --index-url https://download.pytorch.org/whl/cpu "torch==$TORCH_VERSION"; then
      say "  neither your package index nor PyTorch's offers the CPU build; taking the plain one"
      must pip_install "torch==$TORCH_VERSION"
      warn_of_cuda_build
    fi
  fi
}

warn_of_cuda_build() {
  local cuda
  cuda=$("$VENV/bin/python" -c 'import torch; print(torch.version.cuda or "")')
  if [ -n "$cuda" ]; then
    say "  that one is the CUDA $cuda build: it works without a GPU, but is several GB larger." \
      "For the small one see \"Choose the torch build\" in docs/install.md"
  fi
}

# --- the stamp ------------------------------------------------------------------------------

fingerprint() {
  {
    echo "$1 ${TORCH_SPEC:-} $PWD"
    "$2" -V
    cat scripts/setup.sh requirements-dev.txt pyproject.toml rlvr-*/pyproject.toml \
      plugins/*/pyproject.toml examples/rlvr-household/pyproject.toml
  } | sha256sum | cut -d' ' -f1
}

is_current() { [ -f "$VENV/stamp-$1" ] && [ "$(cat "$VENV/stamp-$1")" = "$(fingerprint "$1" "$PYTHON_PATH")" ]; }

# --- the steps ------------------------------------------------------------------------------

PYTHON_PATH=$(find_python)
LINES=$(missing_packages "$PYTHON_PATH")
[ -z "$LINES" ] || install_packages "$LINES"
[ "$MODE" = run ] || install_extras
bwrap --unshare-all --ro-bind / / true 2>/dev/null ||
  say "bubblewrap can make no sandbox here, as in a container or chroot without user namespaces:" \
    "Verilog rewards will need a Docker daemon, or other settings (rlvr doctor --plugin cvdp);" \
    "'rlvr run --plugin toy --algo grpo' needs none"

if is_current dev || { [ "$MODE" = run ] && is_current run; }; then
  say "$VENV is up to date"
  [ "$WANTS_ROOTFS" = false ] || build_rootfs
  exit 0
fi

if [ ! -x "$VENV/bin/python" ]; then
  say "making $VENV with $PYTHON_PATH ($("$PYTHON_PATH" -V))"
  "$PYTHON_PATH" -m venv "$VENV" || fail 4 "$PYTHON_PATH could not make a virtual environment"
elif [ "$("$VENV/bin/python" -V)" = "$("$PYTHON_PATH" -V)" ]; then
  say "using the environment in $VENV ($("$VENV/bin/python" -V))"
else
  fail 4 "$PYTHON_PATH is $("$PYTHON_PATH" -V), and $VENV holds $("$VENV/bin/python" -V)" \
    "give each Python an environment of its own: make ... PYTHON=$PYTHON_PATH VENV=.venv-other"
fi
: >"$VENV/setup.log"

pip_install uv || true

install_torch

say "installing rlvr, rlvr-cvdp, rlvr-algos, rlvr-distill, rlvr-servers, rlvr-torch"
must pip_install "hatchling>=1.25" "editables>=0.5"
must pip_install --no-build-isolation -e ".[plot]" -e rlvr-cvdp \
  -e plugins/rlvr-algos -e plugins/rlvr-distill -e plugins/rlvr-servers -e plugins/rlvr-torch

if [ "$MODE" = dev ]; then
  say "installing rlvr-chess"
  must pip_install "setuptools>=77" # python-chess comes as a source archive
  must pip_install --no-build-isolation -e rlvr-chess
  say "installing what the tests and linters need"
  must pip_install --no-build-isolation -e ".[plot,testing]" -e "plugins/rlvr-torch[hf]" \
    -e plugins/rlvr-rtx4090 -e plugins/rlvr-tinker -e plugins/rlvr-tinker-server -e rlvr-sad \
    -e plugins/rlvr-trackers -e examples/rlvr-household -r requirements-dev.txt
  # its dependency tinker-cookbook brings CUDA; tests of what needs it are skipped
  must pip_install --no-build-isolation --no-deps -e plugins/rlvr-tinker-cookbook
  say "fetching two packages that hold public tokenizers, for the tests"
  "$VENV/bin/python" -m pip download --no-deps --disable-pip-version-check --progress-bar off \
    --dest "$VENV/tokenizers" dashscope llama-index-core >>"$VENV/setup.log" 2>&1 ||
    say "  going on without: tests of them will be skipped"
fi

say "preparing the simulators' Python (rlvr cvdp setup)"
"$VENV/bin/rlvr" cvdp setup >>"$VENV/setup.log" 2>&1 || {
  tail -25 "$VENV/setup.log" >&2
  fail 4 "rlvr cvdp setup failed (whole output: $VENV/setup.log)"
}

[ "$WANTS_ROOTFS" = false ] || build_rootfs

fingerprint "$MODE" "$PYTHON_PATH" >"$VENV/stamp-$MODE"
say "ready in $((SECONDS - STARTED)) s"
