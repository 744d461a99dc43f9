#!/usr/bin/env bash
# Runs a test script in the Python environment of setup.sh: run.sh SCRIPT [ARGUMENTS]. Fails when there is none.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python="${TRAINYARD_CACHE:-$HOME/.cache/trainyard}/python/bin/python3"
if ! "$python" -c 'import numpy, safetensors, sentencepiece, tokenizers' 2>/dev/null; then
  printf 'run.sh: Python with numpy, safetensors, sentencepiece and tokenizers is not set up (%s): run tests/setup.sh\n' "$python" >&2
  exit 1
fi
exec "$python" "$here/$@"
