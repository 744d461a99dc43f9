#!/usr/bin/env bash
# A Python environment with safetensors and numpy, for the tests that open our files with other people's code.
# Safe to run again and to interrupt: an environment that works is left alone, any other is made anew.
#
#   TRAINYARD_CACHE   the environment is made in its directory python/ (default: ~/.cache/trainyard)
set -euo pipefail
cache=${TRAINYARD_CACHE:-$HOME/.cache/trainyard}
env="$cache/python"
packages=(numpy==2.2.6 safetensors==0.5.3)

ready() {
  [ -x "$env/bin/python3" ] &&
    [ "$("$env/bin/python3" -c 'import numpy, safetensors.numpy as s, safetensors; print("numpy==" + numpy.__version__, "safetensors==" + safetensors.__version__)' 2>/dev/null)" = "${packages[*]}" ]
}
ready && exit 0
mkdir -p "$cache"
exec 9>"$cache/.python.lock"
flock 9   # two set-ups at once: the second waits and finds the work done
ready && exit 0
printf 'setup: making a Python environment with %s in %s\n' "${packages[*]}" "$env"
# An environment holds its own path in its scripts, so it is made in place; `ready` tells a half-made one from a whole one.
rm -rf "$env"
python3 -m venv "$env" || { printf 'setup: python3 has no venv: install python3-venv\n' >&2; exit 1; }
"$env/bin/python3" -m pip install --quiet --disable-pip-version-check --only-binary=:all: "${packages[@]}" ||
  { printf 'setup: %s could not be installed: is a Python package index reachable?\n' "${packages[*]}" >&2; exit 1; }
ready || { printf 'setup: the environment in %s does not work: remove it and run %s again\n' "$env" "$0" >&2; exit 1; }
