#!/usr/bin/env bash
# Set-up, release build, every test. Ends with ctest's summary; exits non-zero when anything failed.
#   bash tests/run.sh [ctest arguments]      for example: bash tests/run.sh -R lifecycle
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash tests/setup.sh
printf 'run: building (release preset)\n'
mkdir -p build
cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
cmake --build --preset release --parallel "$(nproc)"
printf 'run: testing\n'
exec ctest --preset release --output-on-failure "$@"
