#!/usr/bin/env bash
# Set-up, release build, every test. Ends with ctest's summary and what was skipped; exits non-zero when anything failed.
#   bash tests/run.sh [--require-cluster] [ctest arguments]      for example: bash tests/run.sh -R lifecycle
#
#   --require-cluster   a cluster test that cannot run here fails (as TRAINYARD_REQUIRE_CLUSTER=1); otherwise it is skipped,
#                       and the reason stands at the end
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" = --require-cluster ]; then
  export TRAINYARD_REQUIRE_CLUSTER=1
  shift
fi
bash tests/setup.sh
printf 'run: building (release preset)\n'
mkdir -p build
cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
cmake --build --preset release --parallel "$(nproc)"
printf 'run: testing\n'
code=0
ctest --preset release --output-on-failure "$@" || code=$?

# A skipped test must not look like one that passed.
log=build/release/Testing/Temporary/LastTest.log
skipped=$(grep -E '^\[  SKIPPED \] [A-Za-z0-9_./]+( \([0-9]+ ms\))$' "$log" | sed -E 's/^\[  SKIPPED \] ([^ ]+).*/  \1/' | sort -u || true)
reasons=$(grep -ohE '(^|: )[a-z]+: SKIPPED: .*' "$log" | sed -E 's/^: //' | sort -u || true)
if [ -n "$skipped$reasons" ]; then
  printf '\nrun: NOT EVERYTHING WAS TESTED. Why:\n%s\n' "$(printf '%s' "${reasons:-see the tests below with -V}" | sed 's/^/  /')"
  printf 'run: skipped tests (--require-cluster makes those of the cluster fail instead): %s\n%s\n' "$(printf '%s' "$skipped" | grep -c . || true)" "$skipped"
fi
exit $code
