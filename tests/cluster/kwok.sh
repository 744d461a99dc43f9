#!/usr/bin/env bash
# Simulated nodes for tests of scale: KWOK answers for their kubelets, so pods that are bound to them run at once and end
# when they are deleted, and nothing is started. Needs a control plane (up.sh); down.sh takes it down with the rest.
#
#   kwok.sh up --dir DIR --nodes N [--gpus 8] [--product NAME] [--memory MIB] [--prefix sim]
#   kwok.sh down --dir DIR
#
# A product is a value of nvidia.com/gpu.product, as GPU feature discovery writes it (default: NVIDIA-H100-80GB-HBM3).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
usage="kwok.sh up --dir DIR --nodes N [--gpus 8] [--product NAME] [--memory MIB] [--prefix sim], or kwok.sh down --dir DIR"
[ $# -gt 0 ] || die "$usage"
action=$1
shift
dir="" nodes=1 gpus=8 product=NVIDIA-H100-80GB-HBM3 memory=81559 prefix=sim
while [ $# -gt 0 ]; do
  case $1 in
    --dir) dir=$2; shift 2 ;;
    --nodes) nodes=$2; shift 2 ;;
    --gpus) gpus=$2; shift 2 ;;
    --product) product=$2; shift 2 ;;
    --memory) memory=$2; shift 2 ;;
    --prefix) prefix=$2; shift 2 ;;
    *) die "$usage" ;;
  esac
done
dir=$(run_dir "$dir")
kubectl=("$(controlplane_dir)/kubectl" --kubeconfig "$dir/admin.kubeconfig")

down() {
  [ ! -e "$dir/admin.kubeconfig" ] || "${kubectl[@]}" delete nodes -l type=kwok --wait=false >/dev/null 2>&1 || true
  stop_part "$dir" kwok 2
}

up() {
  local program
  [ -e "$dir/admin.kubeconfig" ] || die "$dir has no control plane: tests/cluster/up.sh --dir $dir"
  program=$(program_dir kwok)/kwok
  [ -x "$program" ] || bash "$here/setup.sh" kwok
  # The nodes' conditions and addresses are KWOK's own defaults, and so are the stages of a pod: Running at once, gone when
  # deleted.
  if [ -z "$(part_pid "$dir" kwok)" ]; then
    printf 'apiVersion: config.kwok.x-k8s.io/v1alpha1\nkind: KwokConfiguration\noptions: {podPlayStageParallelism: 16, nodePlayStageParallelism: 8}\n' \
      >"$dir/kwok.yaml"
    start_part "$dir" kwok "$program" --kubeconfig "$dir/admin.kubeconfig" --manage-all-nodes=false \
      --manage-nodes-with-label-selector type=kwok --node-lease-duration-seconds 200 --config "$dir/kwok.yaml"
  fi
  python3 - "$nodes" "$gpus" "$product" "$memory" "$prefix" <<'PY' | "${kubectl[@]}" create -f - >/dev/null
import json, sys
nodes, gpus, product, memory, prefix = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5]
resources = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "1Ti", "pods": "110", "nvidia.com/gpu": gpus}
items = []
for i in range(nodes):
    name = f"{prefix}-{i:04}"
    items.append({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {
            "type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": product, "nvidia.com/gpu.count": gpus,
            "nvidia.com/gpu.memory": memory, "nvidia.com/gpu.replicas": "1", "nvidia.com/mig.strategy": "single"}},
        "status": {"capacity": resources, "allocatable": resources}})
json.dump({"apiVersion": "v1", "kind": "List", "items": items}, sys.stdout)
PY
  for _ in $(seq 1200); do
    [ -n "$(part_pid "$dir" kwok)" ] || die "kwok does not start: $(tail -n 1 "$dir/logs/kwok.log")"
    if [ "$("${kubectl[@]}" get nodes -l type=kwok -o json | python3 -c '
import json, sys
ready = lambda n: any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"].get("conditions", []))
print(sum(ready(n) and not n["spec"].get("taints") for n in json.load(sys.stdin)["items"] if n["metadata"]["name"].startswith(sys.argv[1] + "-")))' "$prefix")" -ge "$nodes" ]; then
      say "$nodes simulated nodes with $gpus GPUs each are Ready"
      return 0
    fi
    sleep 0.2
  done
  die "not all simulated nodes became Ready within 4 minutes; see $dir/logs/kwok.log"
}

case $action in
  up) up ;;
  down) down ;;
  *) die "$usage" ;;
esac
