#!/usr/bin/env bash
# Our engine against PyTorch 2.11 (DDP, FSDP2) on this machine, in alternation: tokens per second, peak tensor bytes,
# resident memory. Builds what it needs, makes the Python environment, runs every row and writes
# docs/benchmarks/engine.json and the table of docs/engine-speed.md. About 20 minutes on two quiet cores.
#
#   bash tests/bench/engine/run.sh                     everything, from the start
#   bash tests/bench/engine/run.sh --resume            rows that the JSON file does not have yet
#   bash tests/bench/engine/run.sh --rows 10M_2r       rows whose name has this regular expression; the others stay in the file
#   bash tests/bench/engine/run.sh --quick --json /tmp/engine.json
#
# All options: --help. Needs what tests/setup.sh installs.
set -euo pipefail
cd "$(dirname "$0")/../../.."
python=$(bash tests/bench/engine/setup.sh)/bin/python3
[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
ninja -C build/release engine_rank engine_count_tensors >/dev/null
case " $* " in
  *" --json"*) exec "$python" tests/bench/engine/bench.py "$@" ;;
esac
exec "$python" tests/bench/engine/bench.py --json docs/benchmarks/engine.json --document docs/engine-speed.md "$@"
