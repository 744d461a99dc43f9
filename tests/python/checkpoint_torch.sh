#!/usr/bin/env bash
# Runs checkpoint_torch_test.py in the environment of tests/bench/engine/setup.sh: checkpoint_torch.sh SAMPLE TRAINYARD TRAINER.
# Exits 77 (skipped) when it is not there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${TRAINYARD_CACHE:-$HOME/.cache/trainyard}/python-torch/bin/python3
if ! "$python" -c 'import torch, transformers, safetensors' 2>/dev/null; then
  printf 'SKIPPED: PyTorch and transformers are not set up (%s): run tests/bench/engine/setup.sh\n' "$python"
  exit 77
fi
exec "$python" "$here/checkpoint_torch_test.py" "$@"
