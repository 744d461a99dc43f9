#!/usr/bin/env bash
# Runs peft_torch_test.py in the environment of tests/bench/engine/setup.sh: peft_torch.sh SAMPLE TRAINYARD.
# Exits 77 (skipped) when it is not there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${TRAINYARD_CACHE:-$HOME/.cache/trainyard}/python-torch/bin/python3
if ! "$python" -c 'import torch, transformers, safetensors, peft' 2>/dev/null; then
  printf 'SKIPPED: PyTorch, transformers and PEFT are not set up (%s): run tests/bench/engine/setup.sh\n' "$python"
  exit 77
fi
exec "$python" "$here/peft_torch_test.py" "$@"
