#!/usr/bin/env bash
# Runs plan_emit_test.py in the environment of plan_tools.sh: plan_emit.sh PLAN_PROGRAM. Exits 77 (skipped) when it is
# not there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TRAINYARD_CACHE:-$HOME/.cache/trainyard}
if [ ! -f "$cache/plan-tools/.complete" ]; then
  printf 'SKIPPED: accelerate and DeepSpeed are not set up in %s: run tests/python/plan_tools.sh\n' "$cache/plan-tools"
  exit 77
fi
exec "$cache/plan-tools/bin/python3" "$here/plan_emit_test.py" "$1" "$cache/plan-tools/source" \
  "${TRAINYARD_LIBTORCH:-$cache/libtorch-2.11.0}"
