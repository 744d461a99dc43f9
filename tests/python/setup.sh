#!/usr/bin/env bash
# A Python environment for the tests that open our files with other people's code, and for those that hold our tokens
# against the Python packages of the same tokenizers.
# Safe to run again and to interrupt: an environment that works is only completed, any other is made anew.
#
#   TRAINYARD_CACHE   the environment is made in its directory python/ (default: ~/.cache/trainyard)
set -euo pipefail
cache=${TRAINYARD_CACHE:-$HOME/.cache/trainyard}
env="$cache/python"
# The tokenizers package is of the version of the crate in trainer/tokenizer/Cargo.toml; what it needs to download models is
# left out.
packages=(numpy==2.2.6 safetensors==0.5.3 tokenizers==0.22.2 sentencepiece==0.2.1 jinja2==3.1.6 markupsafe==3.0.3)

# The packages that are not there in this version.
missing() {
  "$env/bin/python3" - "${packages[@]}" <<'PY' 2>/dev/null || printf '%s\n' "${packages[@]}"
import importlib, importlib.metadata, sys
for package in sys.argv[1:]:
    name, version = package.split("==")
    try:
        if importlib.metadata.version(name) == version and importlib.import_module(name):
            continue
    except Exception:
        pass
    print(package)
PY
}
ready() { [ -z "$(missing)" ]; }
ready && exit 0
mkdir -p "$cache"
exec 9>"$cache/.python.lock"
flock 9   # two set-ups at once: the second waits and finds the work done
ready && exit 0
if ! "$env/bin/python3" -m pip --version >/dev/null 2>&1; then
  printf 'setup: making a Python environment in %s\n' "$env"
  # An environment holds its own path in its scripts, so it is made in place; `ready` tells a half-made one from a whole one.
  rm -rf "$env"
  python3 -m venv "$env" || { printf 'setup: python3 has no venv: install python3-venv\n' >&2; exit 1; }
fi
mapfile -t wanted < <(missing)
printf 'setup: installing %s in %s\n' "${wanted[*]}" "$env"
"$env/bin/python3" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: "${wanted[@]}" ||
  { printf 'setup: %s could not be installed: is a Python package index reachable?\n' "${wanted[*]}" >&2; exit 1; }
ready || { printf 'setup: the environment in %s does not work (missing: %s): remove it and run %s again\n' "$env" "$(missing | xargs)" "$0" >&2; exit 1; }
