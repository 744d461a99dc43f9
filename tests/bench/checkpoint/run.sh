#!/usr/bin/env bash
# Checkpoints against the plain file system, torch.distributed.checkpoint and training without saves, on this machine and
# the disk of --dir. Builds what it needs, makes the Python environment, and writes docs/benchmarks/checkpoint.json and the
# table of docs/checkpoints.md; with --json the file alone. About 3 minutes on two quiet cores, once it is built.
#
#   bash tests/bench/checkpoint/run.sh [--json FILE] [--dir DIRECTORY] [--pairs N]
set -euo pipefail
cd "$(dirname "$0")/../../.."
json=docs/benchmarks/checkpoint.json dir=. pairs=7 document=(--document docs/checkpoints.md)
while [ $# -gt 0 ]; do
  case $1 in
    --json) json=$2 document=() ;;
    --dir) dir=$2 ;;
    --pairs) pairs=$2 ;;
    *) printf 'run.sh: unknown argument %s; see the head of this script\n' "$1" >&2; exit 2 ;;
  esac
  shift 2
done
python=$(bash tests/bench/engine/setup.sh)/bin/python3
[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
ninja -C build/release checkpoint_bench checkpoint_side trainyard trainyard-launch trainyard-trainer >/dev/null
build/release/bin/checkpoint_bench --json "$json" --dir "$dir" --pairs "$pairs"
exec "$python" tests/bench/checkpoint/bench.py --json "$json" --dir "$dir" --pairs "$pairs" "${document[@]}"
