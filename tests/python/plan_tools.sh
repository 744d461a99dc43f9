#!/usr/bin/env bash
# A Python environment with what reads the files of `trainyard plan --emit`: the package accelerate and the sources of
# DeepSpeed (a source distribution; it is unpacked, not built). Safe to run again and to interrupt.
#
#   TRAINYARD_CACHE   the environment is made in its directory plan-tools/ (default: ~/.cache/trainyard)
set -euo pipefail
cache=${TRAINYARD_CACHE:-$HOME/.cache/trainyard}
env="$cache/plan-tools"
packages=(numpy==2.2.6 pyyaml==6.0.2 packaging==25.0 pydantic==2.11.7 hjson==3.1.0)
accelerate=accelerate==1.10.1
deepspeed=deepspeed==0.19.8
wanted="${packages[*]} $accelerate $deepspeed"

ready() { [ "$(cat "$env/.complete" 2>/dev/null)" = "$wanted" ]; }
ready && exit 0
mkdir -p "$cache"
exec 9>"$cache/.plan-tools.lock"
flock 9   # two set-ups at once: the second waits and finds the work done
ready && exit 0
printf 'setup: making a Python environment with %s and %s\n' "$accelerate" "$deepspeed"
rm -rf "$env"
python3 -m venv "$env" || { printf 'setup: python3 has no venv: install python3-venv\n' >&2; exit 1; }
pip=("$env/bin/python3" -m pip --quiet --disable-pip-version-check)
# Without dependencies: their configuration readers need none of PyTorch's gigabytes (see plan_emit_test.py).
"${pip[@]}" install --only-binary=:all: "${packages[@]}" &&
  "${pip[@]}" install --no-deps --only-binary=:all: "$accelerate" &&
  "${pip[@]}" download --no-deps --no-binary=:all: --dest "$env/source" "$deepspeed" &&
  tar -xzf "$env"/source/deepspeed-*.tar.gz -C "$env/source" --strip-components=1 &&
  rm -f "$env"/source/*.tar.gz ||
  { printf 'setup: the readers of plan files could not be installed: is a Python package index reachable?\n' >&2; exit 1; }
printf '%s' "$wanted" >"$env/.complete"
