#!/usr/bin/env bash
# Checkpoints under trouble, on three real nodes: a job resized 2 -> 4 -> 3 -> 1 with kubectl scale, the operator away in the
# middle of a resize, a node lost in the middle of a save, the volume full, jobs deleted in the middle of a save, two jobs on
# one directory. What is expected stands in the table below, and was written before any of it ran.
#
#   bash tests/cluster/checkpoints_e2e.sh [--bin build/release/bin] [--keep] [--shell]     options as those of e2e.sh
#
# It starts itself in namespaces of its own and needs what e2e.sh needs, and mkfs.ext4, loop devices, and a cgroup controller
# that bounds what is written to a device. Without them it says so and exits with 77, or with 1 when
# TRAINYARD_REQUIRE_CLUSTER=1.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$here/e2e_stage.sh"

# scenario | what | expected; {name}: found out on the way (the step at which it stopped, the node that was lost); ~: a part.
expected='
# 1. Another size, three times. The attempt stops with a save of the step that it has reached; the next one goes on from there.
resize-4  | phases        | Running Resizing Placing Starting Running
resize-4  | attempt       | 2
resize-4  | nodes         | 2
resize-4  | restarts      | 0 0
resize-4  | saved         | {stopped}
resize-4  | resumed       | {stopped}
resize-4  | resize        | 2 4 2 the spec has changed
resize-4  | seconds       | drain firstStep load place save start
resize-4  | state         | the same
resize-4  | bytes read    | a fourth
resize-4  | condition     | True Resumed attempt 2 resumed from step {stopped}
resize-3  | phases        | Running Resizing Placing Starting Running
resize-3  | attempt       | 3
resize-3  | nodes         | 3
resize-3  | restarts      | 0 0
resize-3  | saved         | {stopped}
resize-3  | resumed       | {stopped}
resize-3  | resize        | 4 3 3 the spec has changed
resize-3  | seconds       | drain firstStep load place save start
resize-3  | state         | the same
resize-3  | bytes read    | a third
resize-3  | condition     | True Resumed attempt 3 resumed from step {stopped}
resize-1  | phases        | Running Resizing Placing Starting Running
resize-1  | attempt       | 4
resize-1  | nodes         | 1
resize-1  | restarts      | 0 0
resize-1  | saved         | {stopped}
resize-1  | resumed       | {stopped}
resize-1  | resize        | 3 1 4 the spec has changed
resize-1  | seconds       | drain firstStep load place save start
resize-1  | state         | the same
resize-1  | bytes read    | all
resize-1  | condition     | True Resumed attempt 4 resumed from step {stopped}
resized   | phase         | Succeeded
resized   | restarts      | 0 0
resized   | step          | {steps}
resized   | samples       | each once
resized   | parameters    | {undisturbed}

# 2. A node loses its power while a save is written: the save is lost, and nothing that was durable before.
lost      | phases        | Running Recovering Placing Starting Running Succeeded
lost      | why           | attempt 1 failed: node rank 1 on {lost}: the node is gone or unreachable; infrastructure restart 1 of 50
lost      | event         | ~Warning attempt 1 failed: node rank 1 on {lost}: the node is gone or unreachable; infrastructure restart 1 of 50
lost      | attempt       | 2
lost      | restarts      | 0 1
lost      | avoided       | {"{lost}":1}
lost      | nodes         | {others}
lost      | resumed       | {durable}
lost      | condition     | True Resumed attempt 2 resumed from step {durable}
lost      | staged        | none
lost      | saved again   | 2
lost      | step          | {steps}
lost      | samples       | each once

# 3. The volume is full: training goes on, the last checkpoint stays, and the first save after there is room succeeds.
full      | phases        | Running Succeeded
full      | condition     | ~False SaveFailing
full      | why           | ~in a row failed: checkpoint of step {half} not written: rank 0: 
full      | what          | ~No space left on device
full      | advice        | ~free space on the volume of the checkpoints or enlarge it
full      | goes on       | ~; training goes on, the last good checkpoint is of step {durable}
full      | event         | ~No space left on device
full      | attempt       | 1
full      | restarts      | 0 0
full      | valid         | {kept}
full      | good again    | ~True Saved the checkpoint of step
full      | step          | {steps}
full      | samples       | each once

# 4. Deleted while a save is written. Retain: the save ends, the stop saves once more, and all of it stays.
retain    | finalizers    | none
retain    | pods          | none
retain    | newest        | {last}
retain    | valid         | {durable} {half} {last}
retain    | staged        | none
# Delete: then a pod removes the directory, and nothing else.
delete    | finalizers    | ["trainyard.dev/checkpoints"]
delete    | pods          | none
delete    | removed by    | Succeeded
delete    | event         | ~Normal the checkpoints in directory delete of volume slow are removed
delete    | directory     | none
delete    | neighbours    | the same
# The same with --cascade=foreground, as Argo CD deletes: Kubernetes takes the pods away before the operator does.
foreground | finalizers   | ["trainyard.dev/checkpoints"]
foreground | pods         | none
foreground | removed by   | Succeeded
foreground | event        | ~Normal the checkpoints in directory foreground of volume slow are removed
foreground | directory    | none
foreground | neighbours   | the same

# 5. The operator is away as soon as a stop is written: pods save and go by themselves, and the resize ends when it is back.
adrift    | while away    | Resizing 1
adrift    | saved         | {stopped}
adrift    | phases        | Running Resizing Placing Starting Running Succeeded
adrift    | attempt       | 2
adrift    | restarts      | 0 0
adrift    | resize        | 2 1 2 the spec has changed
adrift    | resumed       | {stopped}
adrift    | condition     | True Resumed attempt 2 resumed from step {stopped}
adrift    | step          | {steps}
adrift    | samples       | each once

# 6. A second job on the directory of one that trains waits without pods, and goes on from there when the other has ended.
second    | refused       | ~False CheckpointPathInUse path undisturbed of claim checkpoints is in use by TrainingJob undisturbed, which runs;
second    | event         | ~Warning path undisturbed of claim checkpoints is in use by TrainingJob undisturbed, which runs;
second    | waits         | Pending
second    | pods          | none
second    | phases        | Pending Placing Starting Running Succeeded
second    | attempt       | 1
second    | resumed       | {last}
second    | step          | {steps}
'

command -v mkfs.ext4 >/dev/null && [ -e /dev/loop-control ] || cannot "a volume of its own needs mkfs.ext4 and loop devices"
[ -e /sys/fs/cgroup/blkio/blkio.throttle.write_bps_device ] || grep -qw io /sys/fs/cgroup/cgroup.controllers 2>/dev/null ||
  cannot "a slow volume needs a cgroup controller that bounds writes (blkio, or io of cgroup v2)"
enter "$0" "$@"

# ---- inside ------------------------------------------------------------------------------------------------------------
source "$here/e2e_steps.sh"
source "$here/checkpoints_steps.sh"
trap 'die "line $LINENO: $BASH_COMMAND"' ERR
pause=1         # seconds between two looks, which take time from those who train
long=1000000    # steps of jobs that are to run until something happens to them, however fast the machine is
never=1000000   # steps between saves, where only a stop is to save
every=10        # where saves are to come often
slow=500000     # bytes per second: a save takes some 10 s

title "Three real nodes, the operator, volumes"
start_nodes 3 "$OPERATOR_ARCHIVE $TRAINER_ARCHIVE" 12
install_operator
for volume in corpus samples checkpoints; do make_volume $volume; done
make_disk slow 800
chown 65532 "$dir/volumes/slow"
make_disk small 60
chown 65532 "$dir/volumes/small"
corpus
watch_cluster

# ---- 1 -------------------------------------------------------------------------------------------------------------------
resize_to() {  # GPUS ATTEMPT
  local scenario=resize-$1 from bytes most
  from=$(now_of resize)
  title "kubectl scale to $1"
  run kubectl scale tj/resize "--replicas=$1"
  await 120 "attempt $2 to run" attempt_ran resize "$2"
  await 120 "the first step of attempt $2 to be in the status" is_set resize .status.resize.seconds.firstStep
  known[stopped]=$(last_step_before resize "$2")
  compare "$scenario" phases "$(phases resize "$from")"
  compare "$scenario" attempt "$(field resize .status.attempt)"
  compare "$scenario" nodes "$(pods resize '{.spec.nodeName}' | tr ' ' '\n' | sort -u | wc -l)"
  compare "$scenario" restarts "$(restarts resize)"
  compare "$scenario" saved "$(saved_before resize "$2")"
  compare "$scenario" resumed "$(field resize .status.progress.resumedFromStep)"
  compare "$scenario" resize "$(field resize '.status.resize.from} {.status.resize.to} {.status.resize.attempt} {.status.resize.why')"
  run kubectl get tj resize -o 'jsonpath={.status.resize.seconds}{"\n"}'
  compare "$scenario" seconds "$(kubectl get tj resize -o json | python3 -c 'import json, sys; print(*sorted(json.load(sys.stdin)["status"]["resize"]["seconds"]))')"
  compare "$scenario" state "$(same_state resize)"
  bytes=$(field resize .status.checkpoint.bytes) most=$(field resize .status.resize.bytesReadPerRank)
  printf 'the rank that read most read %s of the %s bytes of the checkpoint\n' "$most" "$bytes"
  compare "$scenario" "bytes read" "$(share "$most" "$bytes" "$1")"
  compare "$scenario" condition "$(condition resize CheckpointHealthy)"
}

title "A job on 2 GPUs"
job resize checkpoints 2 $long $never '{"training": {"determinism": "WorldSize"}}'
await 120 "resize to run" phase_is resize Running
await 120 "step 5" step_reached resize 5
resize_to 4 2
resize_to 3 3
last_steps resize "$(lasting 60 resize 120)"  # long enough to be looked at, on a fast machine as well
resize_steps=${known[steps]}
resize_to 1 4

# ---- 5 -------------------------------------------------------------------------------------------------------------------
title "The operator is away in the middle of a resize"
job adrift slow 2 $long $never
await 120 "adrift to run" phase_is adrift Running
await 120 "step 5" step_reached adrift 5
adrift_from=$(now_of adrift)
last_steps adrift 100
adrift_steps=${known[steps]}
throttle adrift $slow  # the save takes longer than the operator to go
run kubectl scale tj/adrift --replicas=1
await 60 "the stop to be written" phase_is adrift Resizing
run kubectl -n trainyard-system scale deployment/trainyard --replicas=0
await 60 "no operator to be there" eval '[ -z "$(kubectl -n trainyard-system get pods -l app.kubernetes.io/name=trainyard -o name)" ]'
no_pods adrift && die "the pods were gone before the operator was"
unthrottle slow
await 60 "the pods to save and go" no_pods adrift
compare adrift "while away" "$(field adrift '.status.phase} {.status.attempt')"
known[stopped]=$(last_step adrift)
compare adrift saved "$(newest_on_disk adrift)"
run kubectl -n trainyard-system scale deployment/trainyard --replicas=2
await 120 "attempt 2 to run" attempt_ran adrift 2
await 60 "where it goes on to be in the status" is_set adrift .status.progress.resumedFromStep
compare adrift resumed "$(field adrift .status.progress.resumedFromStep)"
compare adrift condition "$(condition adrift CheckpointHealthy)"
compare adrift resize "$(field adrift '.status.resize.from} {.status.resize.to} {.status.resize.attempt} {.status.resize.why')"

# ---- 2: until the power goes; what follows takes its time, in which the others run ---------------------------------------------
title "A node loses its power in the middle of a save"
more_gpus 4  # for all that runs meanwhile
job undisturbed checkpoints 1 "$resize_steps" $never '{"training": {"determinism": "WorldSize"}}'
job lost slow 2 $long $every '{"gpus": {"perNode": 1}, "checkpoint": {"keepLast": 50}}'
await 120 "undisturbed to run" phase_is undisturbed Running
job second checkpoints 1 $((resize_steps + 20)) $never '{"training": {"determinism": "WorldSize"}, "checkpoint": {"path": "undisturbed"}}'
await 60 "the second job to wait for the first" condition_is second Planned "False CheckpointPathInUse"
compare second refused "$(condition second Planned)"
compare second waits "$(field second .status.phase)"
compare second pods "$(pods_of second)"
await 120 "lost to run" phase_is lost Running
in_a_save lost $slow
last_steps lost 40  # for the attempt that follows
lost_steps=${known[steps]}
lost_durable=${known[durable]} lost_half=${known[half]} lost_from=$(now_of lost)
known[lost]=$(pods lost '{.spec.nodeName}' | awk '{print $2}')
known[others]=$(kubectl get nodes -o name | sed 's|node/||' | grep -v "^${known[lost]}$" | xargs)
run bash "$here/node.sh" power-off --dir "$dir" --name "${known[lost]}"
is_staged lost 1 || die "the save was over before the power went"
has_checkpoint lost "$lost_half" && die "the save was over before the power went"
unthrottle slow
await 60 "Kubernetes to notice it" node_is_lost "${known[lost]}"

# ---- 3 -------------------------------------------------------------------------------------------------------------------
title "The volume is full"
# The operator asks a job every 30 s, so that it hears of the trouble and of its end a minute later.
full_steps=$(lasting 110 resize "$resize_steps" "$adrift_steps" "$lost_steps")
job full small 1 "$full_steps" $every
await 120 "full to have a checkpoint" eval '[ -n "$(steps_on_disk full)" ]'
full_from=$(now_of full)
fill small
await 60 "the job to say that saves fail" condition_is full CheckpointHealthy "False SaveFailing"
# Not before: a save that has all its bytes when the disk becomes full is made yet.
known[kept]=$(steps_on_disk full) known[durable]=$(newest_on_disk full)
run kubectl get tj full
message=$(condition full CheckpointHealthy)
printf 'CheckpointHealthy=%s\n' "$message"
# Each save that was due since then has failed, and the message counts them.
known[half]=$((known[durable] + every * $(sed 's/[^0-9]*\([0-9]*\).*/\1/' <<<"$message")))
for what in condition why what advice "goes on"; do compare full "$what" "$message"; done
compare full event "$(events full SaveFailing)"
compare full valid "$(verified full)"
compare full attempt "$(field full .status.attempt)"
rm "$dir/volumes/small/filler"
await 60 "a save to succeed" condition_is full CheckpointHealthy "True Saved"
compare full "good again" "$(condition full CheckpointHealthy)"

# ---- 4 -------------------------------------------------------------------------------------------------------------------
title "A job is deleted in the middle of a save: Retain"
job retain slow 1 $long $every
await 120 "retain to run" phase_is retain Running
in_a_save retain $slow
compare retain finalizers "$(field retain .metadata.finalizers)"
run kubectl delete tj retain --wait=false
is_staged retain 1 || die "the save was over before the job was deleted"
unthrottle slow
await 90 "its pods to save and go" no_pods retain
job_is_gone retain || die "the job retain is still there"
known[last]=$(last_step retain)
compare retain pods "$(pods_of retain)"
compare retain newest "$(newest_on_disk retain)"
compare retain valid "$(verified retain)"
compare retain staged "$(staged retain 1)"

# What lies beside the directories that go, and what a link in them leads to.
mkdir -p "$dir/volumes/slow/delete-2"
date >"$dir/volumes/slow/delete-2/notes"
date >"$dir/volumes/slow/notes"
neighbours() { (cd "$dir/volumes/slow" && find retain delete-2 notes -type f -exec sha256sum {} + | sort | sha256sum); }
delete_in_a_save() {  # JOB OPTIONS...
  local before
  job "$1" slow 1 $long $every '{"checkpoint": {"onDelete": "Delete"}}'
  await 120 "$1 to run" phase_is "$1" Running
  in_a_save "$1" $slow
  mkdir "$(checkpoints "$1")/abandoned-9"
  ln -s ../../retain "$(checkpoints "$1")/abandoned-9/link"
  chown -Rh 65532 "$(checkpoints "$1")/abandoned-9"
  before=$(neighbours)
  compare "$1" finalizers "$(field "$1" .metadata.finalizers)"
  run kubectl delete tj "$1" --wait=false "${@:2}"
  is_staged "$1" 1 || die "the save was over before the job was deleted"
  unthrottle slow
  await 120 "the job to be gone" job_is_gone "$1"
  await 30 "its pods to be gone" no_pods "$1"
  run grep "^$1-.*-remove|" "$dir/pods"
  compare "$1" pods "$(pods_of "$1")"
  compare "$1" "removed by" "$(grep "^$1-.*-remove|" "$dir/pods" | cut -d '|' -f 2 | tail -1)"
  compare "$1" event "$(events "$1" CheckpointsRemoved; events "$1" CheckpointsLeft)"
  compare "$1" directory "$(ls -d "$(checkpoints "$1")" 2>/dev/null || true)"
  compare "$1" neighbours "$([ "$(neighbours)" = "$before" ] && echo "the same" || neighbours)"
}
title "A job is deleted in the middle of a save: Delete"
delete_in_a_save delete
title "The same with --cascade=foreground"
delete_in_a_save foreground --cascade=foreground

# ---- the rest of 2 -------------------------------------------------------------------------------------------------------
title "The job that lost a node"
await 180 "attempt 2 to run" attempt_ran lost 2
await 60 "where it goes on to be in the status" is_set lost .status.progress.resumedFromStep
known[durable]=$lost_durable
compare lost why "$(reasons lost Recovering | head -1)"
compare lost event "$(events lost NodeLost)"
compare lost attempt "$(field lost .status.attempt)"
compare lost restarts "$(restarts lost)"
compare lost avoided "$(field lost .status.excludedNodes)"
compare lost nodes "$(pods_of_attempt lost 2 '{.spec.nodeName}')"
compare lost resumed "$(field lost .status.progress.resumedFromStep)"
compare lost condition "$(condition lost CheckpointHealthy)"
no_staging_of lost 1 || die "what attempt 1 has staged is still there"
compare lost staged "$(staged lost 1)"
await 120 "the step of the lost save to be saved" has_checkpoint lost "$lost_half"
compare lost "saved again" "$(writer_of lost "$lost_half")"

# ---- how they ended ------------------------------------------------------------------------------------------------------
title "How they ended"
for name in undisturbed resize adrift lost full; do await 300 "$name to end" phase_is $name Succeeded; done
await 120 "the job that waited for the directory to end" phase_is second Succeeded
run kubectl get tj
known[undisturbed]=$(field undisturbed .status.progress.parameterHash)
known[steps]=$resize_steps
compare resized phase "$(field resize .status.phase)"
compare resized restarts "$(restarts resize)"
compare resized step "$(field resize .status.progress.step)"
compare resized parameters "$(field resize .status.progress.parameterHash)"
compare resized samples "$(samples resize "$resize_steps" none)"
compare second event "$(events second CheckpointPathInUse)"
compare second phases "$(phases second)"
compare second attempt "$(field second .status.attempt)"
known[last]=$resize_steps known[steps]=$((resize_steps + 20))
compare second resumed "$(field second .status.progress.resumedFromStep)"
compare second step "$(field second .status.progress.step)"
known[steps]=$resize_steps
expect "samples of the undisturbed run" "each once" "$(samples undisturbed "$resize_steps" none)"
known[steps]=$lost_steps
compare lost phases "$(phases lost "$lost_from")"
compare lost step "$(field lost .status.progress.step)"
compare lost samples "$(samples lost "$lost_steps" some)"
known[steps]=$full_steps
compare full phases "$(phases full "$full_from")"
compare full restarts "$(restarts full)"
compare full step "$(field full .status.progress.step)"
compare full samples "$(samples full "$full_steps" none)"
known[steps]=$adrift_steps
compare adrift phases "$(phases adrift "$adrift_from")"
compare adrift attempt "$(field adrift .status.attempt)"
compare adrift restarts "$(restarts adrift)"
compare adrift step "$(field adrift .status.progress.step)"
compare adrift samples "$(samples adrift "$adrift_steps" none)"
all_compared

[ $shell = 0 ] || PATH="$(dirname "$KUBECTL"):$PATH" bash || true
title "All of it held, in $SECONDS s"
