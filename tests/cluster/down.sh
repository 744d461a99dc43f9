#!/usr/bin/env bash
# Stops what up.sh (and kwok.sh, node.sh) started in a directory and removes the directory. Safe to run twice.
#   tests/cluster/down.sh --dir DIR [--keep-logs]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
dir="" keep=0
while [ $# -gt 0 ]; do
  case $1 in
    --dir) dir=$2; shift 2 ;;
    --keep-logs) keep=1; shift ;;
    *) die "down.sh does not know $1: --dir DIR [--keep-logs]" ;;
  esac
done
dir=$(run_dir "$dir")
[ -e "$dir" ] || exit 0
[ -e "$dir/.trainyard-cluster" ] || [ -z "$(ls -A "$dir")" ] || die "$dir is not a run of ours: nothing was touched"

stop_part "$dir" watchdog 1
if [ -d "$dir/nodes" ]; then
  bash "$here/node.sh" down --dir "$dir" --all
fi
# In the order in which they need each other; etcd last, and at once: nothing of it is kept.
for part in kwok coredns kube-proxy kube-scheduler kube-controller-manager; do
  stop_part "$dir" "$part" 2
done
stop_part "$dir" kube-apiserver 0
stop_part "$dir" etcd 0
if [ $keep = 1 ]; then
  find "$dir" -mindepth 1 -maxdepth 1 ! -name logs ! -name .trainyard-cluster -exec rm -rf {} +
else
  rm -rf "$dir"
fi
