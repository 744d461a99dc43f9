#!/usr/bin/env bash
# helm upgrade, rollback and uninstall under a job that trains on two real nodes: the same pods with the same attempt go on
# training, a pod that is killed afterwards comes back with the image it had, and an uninstall takes neither the CRD nor the
# job nor its checkpoints. e2e.sh calls it inside its cluster, with the chart installed and the volumes made.
#
#   bash tests/cluster/chart_upgrade.sh --dir DIR --images FILE
#     --dir DIR      the run of up.sh, with two nodes
#     --images FILE  what images.sh printed
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

dir="" images=""
while [ $# -gt 0 ]; do
  case $1 in
    --dir) dir=$(run_dir "$2"); shift 2 ;;
    --images) images=$2; shift 2 ;;
    *) die "chart_upgrade.sh does not know $1: --dir DIR --images FILE" ;;
  esac
done
[ -n "$dir" ] && [ -n "$images" ] || die "chart_upgrade.sh needs --dir DIR and --images FILE"
source "$here/e2e_steps.sh"
source "$images"
source "$dir/env"
export KUBECONFIG
trap 'die "line $LINENO: $BASH_COMMAND"' ERR

namespace=trainyard-system
job=upgraded
cleanup() { kubectl delete tj "$job" --ignore-not-found --timeout=60s >/dev/null 2>&1 || true; }
trap cleanup EXIT

release() { run "$HELM" "$@" --namespace $namespace --wait --timeout 120s; }
# Values of e2e.sh, so that an upgrade changes what it says and nothing else.
upgrade() {
  release upgrade trainyard "$repository/charts/trainyard" --reuse-values --hide-notes "$@"
}
operator_image() { kubectl -n $namespace get deployment trainyard -o 'jsonpath={.spec.template.spec.containers[0].image}'; }
operator_uids() { kubectl -n $namespace get pods -l app.kubernetes.io/name=trainyard -o 'jsonpath={.items[*].metadata.uid}'; }
new_operators() {  # OLD_UIDS: none of them is left, and one of the others leads
  local now old
  now=$(operator_uids)
  for old in $1; do
    [[ $now != *$old* ]] || return 1
  done
  leader_pod >/dev/null
}
undisturbed() {  # AFTER_WHAT: the same pods, the same attempt, and training went on
  local step
  expect "pods after the $1" "$uids" "$(pods $job '{.metadata.uid}')"
  expect "attempt after the $1" Running/1 "$(field $job '.status.phase}/{.status.attempt')"
  step=$(live $job step)
  await 300 "2 more steps after the $1" step_reached $job $((${step:-0} + 2))
}

printf 'A small job with the trainer of the chart, a rank on each node.\n'
for node in "$dir"/nodes/*/; do
  ctr --address "${node}containerd.sock" --namespace k8s.io images tag --force "$OPERATOR_IMAGE" localhost/trainyard-operator:next
done
kubectl create --dry-run=client -o json -f "$repository/docs/examples/quickstart.yaml" | python3 -c '
import json, sys
job = json.load(sys.stdin)
job["metadata"] = {"name": sys.argv[1]}
spec = job["spec"]
spec["gpus"] = {"count": 2, "perNode": 1}
spec["model"]["architecture"].update(layers=2, hiddenSize=64, ffnSize=128)
spec["training"].update(steps=100000, globalBatchSize=4, sequenceLength=64, evaluation={"everySteps": 0})
spec["checkpoint"]["every"] = {"steps": 20}
print(json.dumps(job))' $job | kubectl apply -f -
await 90 "the job to run" attempt_runs $job 1
await 300 "step 25, beyond a checkpoint" step_reached $job 25
uids=$(pods $job '{.metadata.uid}')
was=$(pods $job '{.spec.containers[0].image}')
expect "image of the pods" "$TRAINER_IMAGE $TRAINER_IMAGE" "$was"
expect "image in status" "$TRAINER_IMAGE" "$(field $job .status.trainer.image)"

old=$(operator_uids)
upgrade --set image.tag=next,trainer.image.tag=next,logging.level=debug
expect "image of the operator" localhost/trainyard-operator:next "$(operator_image)"
await 60 "a new operator to lead" new_operators "$old"
undisturbed upgrade

old=$(operator_uids)
release rollback trainyard
expect "image of the operator" "$OPERATOR_IMAGE" "$(operator_image)"
await 60 "the old operator to lead again" new_operators "$old"
undisturbed rollback

old=$(operator_uids)
upgrade --set image.tag=next,trainer.image.tag=next
await 60 "the new operator to lead" new_operators "$old"
run kubectl -n $namespace get pods
saved=$(field $job .status.checkpoint.step)
victim=$(kubectl get pods -l "$job_name=$job,trainyard.dev/node-rank=1" -o name)
run kubectl delete "$victim" --wait=false
await 90 "attempt 2 to run" attempt_runs $job 2
expect "image of the pods that came back" "$was" "$(kubectl get pods -l "$job_name=$job,trainyard.dev/attempt=2" -o 'jsonpath={.items[*].spec.containers[0].image}')"
await 240 "the job to go on from a checkpoint" resumed_beyond $job 19
printf 'attempt 2 goes on from step %s; the last checkpoint in status before the kill was %s\n' "$(live $job resumedFromStep)" "${saved:-none}"
uids=$(pods $job '{.metadata.uid}')

identity=$(kubectl get tj $job -o 'jsonpath={.metadata.uid}')
release uninstall trainyard
no_operators() { [ -z "$(operator_uids)" ]; }
await 60 "the operators to be gone" no_operators
expect "the job after the uninstall" "$identity" "$(kubectl get tj $job -o 'jsonpath={.metadata.uid}')"
expect "its pods after the uninstall" "$uids" "$(pods $job '{.metadata.uid}')"
[ -n "$(find "$dir/volumes/checkpoints/$job" -name manifest.json -print -quit)" ] || die "the checkpoints are gone"
step=$(live $job step)
await 240 "training to go on without an operator" step_reached $job $((${step:-0} + 2))
release install trainyard "$repository/charts/trainyard" --hide-notes \
  --set "image.registry=localhost,image.repository=trainyard-operator,image.tag=${OPERATOR_IMAGE##*:},image.pullPolicy=Never" \
  --set "trainer.image.registry=localhost,trainer.image.repository=trainyard-trainer,trainer.image.tag=${TRAINER_IMAGE##*:}" \
  --set trainer.cpuPerGPU=300m
await 60 "a leader" leader_pod
expect "attempt under the operator of the new install" Running/2 "$(field $job '.status.phase}/{.status.attempt')"
expect "its pods" "$uids" "$(pods $job '{.metadata.uid}')"
run kubectl delete tj $job --timeout=120s
printf 'ok: upgrade, rollback, uninstall and install again, all under a job that trained\n'
