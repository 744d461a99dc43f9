#!/usr/bin/env bash
# A Python environment with PyTorch for the comparison: the wheel whose LibTorch we link, and what reads weights.
# Safe to run again and to interrupt: an environment that works is left alone, any other is made anew. Prints its path.
#
#   TRAINYARD_CACHE   the environment is made in its directory python-torch/ (default: ~/.cache/trainyard)
set -euo pipefail
cache=${TRAINYARD_CACHE:-$HOME/.cache/trainyard}
env="$cache/python-torch"
packages=(torch==2.11.0 numpy==2.2.6 safetensors==0.5.3 transformers==4.57.1)

ready() {
  # The torch wheel adds its own local version, such as +cu130.
  [ -x "$env/bin/python3" ] &&
    [ "$("$env/bin/python3" -c 'from importlib.metadata import version as v; print(*(n + "==" + v(n).split("+")[0] for n in ("torch", "numpy", "safetensors", "transformers")))' 2>/dev/null)" = "${packages[*]}" ]
}
if ! ready; then
  mkdir -p "$cache"
  exec 9>"$cache/.python-torch.lock"
  flock 9   # two set-ups at once: the second waits and finds the work done
  if ! ready; then
    printf 'setup: making a Python environment with %s in %s\n' "${packages[*]}" "$env" >&2
    # An environment holds its own path in its scripts, so it is made in place; `ready` tells a half-made one from a whole one.
    rm -rf "$env"
    python3 -m venv "$env" || { printf 'setup: python3 has no venv: install python3-venv\n' >&2; exit 1; }
    "$env/bin/python3" -m pip install --quiet --disable-pip-version-check --only-binary=:all: "${packages[@]}" >&2 ||
      { printf 'setup: %s could not be installed: is a Python package index reachable?\n' "${packages[*]}" >&2; exit 1; }
    ready || { printf 'setup: the environment in %s does not work: remove it and run %s again\n' "$env" "$0" >&2; exit 1; }
  fi
fi
# What the tests of adapters need besides, without what it would pull in: that is there already, or not used.
adapters=(peft==0.18.0 accelerate==1.10.1 psutil==7.2.2)
with_adapters() { [ "$("$env/bin/python3" -c 'from importlib.metadata import version as v; print(*(n + "==" + v(n) for n in ("peft", "accelerate", "psutil")))' 2>/dev/null)" = "${adapters[*]}" ]; }
with_adapters || "$env/bin/python3" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: "${adapters[@]}" >&2 ||
  { printf 'setup: %s could not be installed: is a Python package index reachable?\n' "${adapters[*]}" >&2; exit 1; }
printf '%s\n' "$env"
