#!/usr/bin/env bash
# How fast `trainyard data tokenize` is on one core, beside the Python packages of the same tokenizers on the same documents
# in the same run. Builds what it needs; about 3 minutes on two quiet cores. Writes its rows into docs/benchmarks/models.json
# and leaves those of others.
#
#   bash tests/bench/models/tokenize.sh [--json FILE] [--pairs N] [--seed N]
set -euo pipefail
cd "$(dirname "$0")/../../.."
json=docs/benchmarks/models.json pairs=7 seed=
while [ $# -gt 0 ]; do
  case $1 in
    --json) json=$2 ;;
    --pairs) pairs=$2 ;;
    --seed) seed=$2 ;;
    *) printf 'tokenize.sh: unknown argument %s; see the head of this script\n' "$1" >&2; exit 2 ;;
  esac
  shift 2
done
[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
ninja -C build/release trainyard >/dev/null
exec bash tests/python/run.sh ../bench/models/tokenize_speed.py --program build/release/bin/trainyard --json "$json" --pairs "$pairs" ${seed:+--seed "$seed"}
