#!/usr/bin/env bash
# ctest's side of up.sh and down.sh: fixture.sh up|down DIR. Where no control plane can run, `up` leaves the reason in
# DIR/skipped and succeeds, so that each test that needs it is there to say that it was skipped, and why.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
action=$1 dir=$2
if [ "$action" = down ]; then
  rm -f "$dir/skipped"
  exec bash "$here/down.sh" --dir "$dir"
fi
rm -f "$dir/skipped"
code=0
errors=$(mktemp)
bash "$here/up.sh" --dir "$dir" 2>"$errors" || code=$?
cat "$errors" >&2
if [ $code = 77 ]; then
  mkdir -p "$dir"
  rm -f "$dir/env"
  : >"$dir/.trainyard-cluster"
  tail -n 1 "$errors" >"$dir/skipped"
  code=0
fi
rm -f "$errors"
exit $code
