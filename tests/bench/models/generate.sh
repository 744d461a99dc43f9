#!/usr/bin/env bash
# How fast `trainyard generate` makes text on this machine's cores, beside transformers with the same model, prompt and number
# of threads in the same run: greedy, a prompt of 32 tokens, 128 new ones, the shape of SmolLM-135M, in FP32 and in BF16.
# Builds what it needs; 3 minutes on two quiet cores. Needs the environment of tests/bench/engine/setup.sh. Writes its rows
# into docs/benchmarks/models.json and leaves those of others.
#
#   bash tests/bench/models/generate.sh [--json FILE] [--pairs N] [--threads N]
set -euo pipefail
cd "$(dirname "$0")/../../.."
json=docs/benchmarks/models.json more=()
while [ $# -gt 0 ]; do
  case $1 in
    --json) json=$2 ;;
    --pairs | --threads) more+=("$1" "$2") ;;
    *) printf 'generate.sh: unknown argument %s; see the head of this script\n' "$1" >&2; exit 2 ;;
  esac
  shift 2
done
bash tests/bench/engine/setup.sh
[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
ninja -C build/release trainyard trainyard-generate >/dev/null
exec "${TRAINYARD_CACHE:-$HOME/.cache/trainyard}/python-torch/bin/python3" tests/bench/models/generate_speed.py \
  --program build/release/bin/trainyard --json "$json" "${more[@]}"
