#!/usr/bin/env bash
# The whole story on two real nodes: the chart installed from the built images, two operator replicas, the quick-start job
# with 2 ranks on each node over the pod network, resized 4 -> 2 -> 4 with kubectl scale, the leading operator killed in the
# middle of a resize, a pod deleted, the job Succeeded, and every sample accounted for. Then a user's own program. What it
# prints is the test's output.
#
#   bash tests/cluster/e2e.sh [--bin build/release/bin] [--keep] [--shell]
#     --keep    leave the directory with logs, volumes and checkpoints
#     --shell   at the end, before everything goes, start a shell with KUBECONFIG set
#
# It starts itself in namespaces of its own (network, mounts, processes), so whatever happens nothing stays behind, and
# several may run at once. Needs root, containerd, runc, CNI plug-ins, iptables, buildah, debootstrap: tests/setup.sh.
# Without them it says so and exits with 77, or with 1 when TRAINYARD_REQUIRE_CLUSTER=1.
#   TRAINYARD_E2E_STEPS   steps of the job (default: the 400 of the quick start; fewer for a machine that is busy)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

source "$here/e2e_stage.sh"
enter "$0" "$@"

# ---- inside ------------------------------------------------------------------------------------------------------------
source "$here/e2e_steps.sh"
trap 'die "line $LINENO: $BASH_COMMAND"' ERR
steps=${TRAINYARD_E2E_STEPS:-400}

title "Two real nodes: control plane, containerd and kubelet each, kube-proxy, CoreDNS"
start_nodes 2 "$OPERATOR_ARCHIVE $TRAINER_ARCHIVE $USER_ARCHIVE"

title "helm install"
install_operator

title "Volumes that both nodes share, and real text: the King James Bible, its last twentieth held out"
make_volume corpus
make_volume checkpoints
corpus

title "The quick-start job, undisturbed, on 4 ranks"
quickstart undisturbed
await 240 "the job to run" phase_is undisturbed Running
await 900 "the job to end" phase_is undisturbed Succeeded Failed
run kubectl get trainingjob undisturbed
expect "phase" Succeeded "$(field undisturbed .status.phase)"

title "The quick-start job again: 4 ranks, 2 on each node"
quickstart quickstart
await 240 "the job to run" phase_is quickstart Running
run kubectl get tj -o wide
run kubectl get pods -l trainyard.dev/job-name=quickstart -o wide
expect "nodes of the pods" "node-1 node-2" "$(pods quickstart '{.spec.nodeName}')"
expect "GPUs of the pods" "2 2" "$(pods quickstart '{.spec.containers[0].resources.requests.nvidia\.com/gpu}')"
expect "quality of service" "Burstable Burstable" "$(pods quickstart '{.status.qosClass}')"
first=$(kubectl get pods -l "trainyard.dev/job-name=quickstart,trainyard.dev/node-rank=0" -o name)
hardened "$first"
await 240 "step 20" step_reached quickstart 20

title "kubectl scale to 2, and the leading operator killed while the job is Resizing"
kill_leader_while_resizing quickstart &
killer=$!
sleep 1  # its watch is open; a later kill than meant would fail the test below, not pass it
run kubectl scale tj/quickstart --replicas=2
wait "$killer" || die "the leader was not killed in time"
run kubectl get tj quickstart
expect "phase after the kill, before anybody else leads" Resizing "$(field quickstart .status.phase)"
await 240 "2 ranks to run" running_on quickstart 2
run kubectl get tj quickstart
run kubectl -n trainyard-system get pods
expect "restarts of operator containers" 1 "$(kubectl -n trainyard-system get pods -o 'jsonpath={.items[*].status.containerStatuses[0].restartCount}' | tr ' ' '\n' | awk '{n += $1} END {print n}')"
expect "attempt" 2 "$(field quickstart .status.attempt)"
await 240 "the new attempt to train" resumed_beyond quickstart 19
resumed=$(live quickstart resumedFromStep)
printf 'attempt 2 goes on from step %s\n' "$resumed"
await 240 "10 more steps" step_reached quickstart $((resumed + 10))

title "kubectl scale back to 4"
run kubectl scale tj/quickstart --replicas=4
await 240 "4 ranks to run" running_on quickstart 4
expect "attempt" 3 "$(field quickstart .status.attempt)"
await 240 "the new attempt to train" resumed_beyond quickstart "$resumed"
resumed=$(live quickstart resumedFromStep)
printf 'attempt 3 goes on from step %s\n' "$resumed"
await 240 "10 more steps" step_reached quickstart $((resumed + 10))

title "A pod is deleted"
victim=$(kubectl get pods -l "trainyard.dev/job-name=quickstart,trainyard.dev/attempt=3,trainyard.dev/node-rank=1" -o name)
run kubectl delete "$victim" --wait=false
await 240 "attempt 4 to run" attempt_runs quickstart 4
await 900 "the job to end" phase_is quickstart Succeeded Failed

title "How it ended"
run kubectl get tj
run kubectl get tj -o wide
run kubectl describe tj quickstart
run kubectl get events --field-selector involvedObject.kind=TrainingJob,involvedObject.name=quickstart --sort-by .metadata.creationTimestamp
expect "phase" Succeeded "$(field quickstart .status.phase)"
expect "restarts paid by the user" 0 "$(field quickstart '.status.restarts.user')"
expect "restarts paid by the infrastructure" 0 "$(field quickstart '.status.restarts.infrastructure')"
expect "last step" "$steps" "$(field quickstart .status.progress.step)"
python3 "$here/e2e_samples.py" "$dir/volumes/checkpoints/samples/quickstart" "$dir/volumes/checkpoints/samples/undisturbed" 16 "$steps" ||
  die "the samples are not those of an undisturbed run"
same_loss quickstart undisturbed
run "$bin/trainyard" checkpoints list "$dir/volumes/checkpoints/quickstart"
run "$bin/trainyard" checkpoints verify "$dir/volumes/checkpoints/quickstart"
listed=$("$bin/trainyard" checkpoints list "$dir/volumes/checkpoints/quickstart")
expect "the same list through a pod that mounts the volume" "$listed" "$("$bin/trainyard" checkpoints list --job quickstart)"
run "$bin/trainyard" checkpoints verify --job quickstart
run "$bin/trainyard" checkpoints export --job quickstart checkpoints:exported --to huggingface
run "$bin/trainyard" checkpoints import --job quickstart checkpoints:exported checkpoints:imported
run "$bin/trainyard" checkpoints diff --weights-only "$dir/volumes/checkpoints/quickstart" "$dir/volumes/checkpoints/imported"
expect "pods of these commands that stay" "" "$(kubectl get pods -l trainyard.dev/role=checkpoints -o name)"

title "A user's own program: plain sh"
own_program own-shell sh -c 'echo "WORLD_SIZE=$WORLD_SIZE NNODES=$NNODES NODE_RANK=$NODE_RANK NPROC_PER_NODE=$NPROC_PER_NODE MASTER_ADDR=$MASTER_ADDR MASTER_PORT=$MASTER_PORT"; env | grep ^PET_ | sort'
for rank in 0 1; do
  log=$(kubectl logs -l "trainyard.dev/job-name=own-shell,trainyard.dev/node-rank=$rank" --tail=-1)
  printf '%s\n' "$log"
  expect "what node rank $rank saw" \
    "WORLD_SIZE=4 NNODES=2 NODE_RANK=$rank NPROC_PER_NODE=2 MASTER_ADDR=tj-own-shell.default.svc MASTER_PORT=29500" "$(head -1 <<<"$log")"
  contains "$log" "PET_NODE_RANK=$rank"
done

title "A user's own program: Python, which meets over MASTER_ADDR:MASTER_PORT by name"
own_program own-python python3 -u -c "$(cat "$here/e2e_own_program.py")"
for rank in 0 1; do
  log=$(kubectl logs -l "trainyard.dev/job-name=own-python,trainyard.dev/node-rank=$rank" --tail=-1)
  printf '%s\n' "$log"
  contains "$log" "node rank $rank of 2 met node rank $((1 - rank)), world size 4"
done
run kubectl get tj

title "helm upgrade, rollback and uninstall with a Running job"
run bash "$here/chart_upgrade.sh" --dir "$dir" --images "$dir.images"

[ $shell = 0 ] || PATH="$(dirname "$KUBECTL"):$PATH" bash || true
title "All of it held, in $SECONDS s"
