#!/usr/bin/env bash
# docs/examples/finetune.sh from end to end, in a directory of its own, and then what it left against finetune_check.py:
# finetune.sh DIRECTORY_OF_PROGRAMS. Exits 77 (skipped) where the model could not be had.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TRAINYARD_CACHE:-$HOME/.cache/trainyard}
if [ ! -d "$cache/smollm2-135m-instruct" ]; then
  printf 'SKIPPED: SmolLM2-135M-Instruct is not in %s: run docs/examples/finetune/model.sh\n' "$cache"
  exit 77
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/trainyard-finetune-XXXXXX")
trap 'rm -rf "$dir"' EXIT
TRAINYARD_BIN=$1 bash "$here/../../docs/examples/finetune.sh" "$dir/run"
"$cache/python/bin/python3" "$here/finetune_check.py" "$dir/run"
