# What checkpoints_e2e.sh is written in, besides e2e_steps.sh: the table of what is expected, the history of every job, disks
# of their own that can be slow or full, and jobs with saves under way. Source it inside the run.

# ---- what is expected ------------------------------------------------------------------------------------------------------
# The table has `scenario | what | expected` in each line. {NAME} in `expected` stands for known[NAME], which the scenario
# finds out; a text that begins with ~ is to be a part of what comes out.
declare -A known=() compared=()
rows() { grep -v '^ *\(#\|$\)' <<<"$expected"; }
row() {  # SCENARIO WHAT
  rows | awk -F ' *[|] *' -v scenario="$1" -v what="$2" '$1 == scenario && $2 == what {sub(/^[^|]*[|][^|]*[|] */, ""); print}'
}
compare() {  # SCENARIO WHAT GOT
  local wanted name
  wanted=$(row "$1" "$2")
  [ -n "$wanted" ] || die "the table has no row '$1 | $2'"
  for name in "${!known[@]}"; do wanted=${wanted//"{$name}"/"${known[$name]}"}; done
  [[ ! $wanted =~ \{[a-z]+\} ]] || die "$1, $2: not known in '$wanted'"
  if [ "$wanted" = none ]; then wanted=""; fi
  compared["$1|$2"]=1
  if [[ $wanted == "~"* ]]; then
    [[ $3 == *"${wanted#"~"}"* ]] || die "$1, $2: expected a text with '${wanted#"~"}', got '$3'"
  else
    [ "$3" = "$wanted" ] || die "$1, $2: expected '$wanted', got '$3'"
  fi
  printf 'as expected: %s, %s: %s\n' "$1" "$2" "${wanted:-none}"
}
all_compared() {
  local scenario what rest
  while IFS='|' read -r scenario what rest; do
    scenario=$(xargs <<<"$scenario") what=$(xargs <<<"$what")
    [ -n "${compared["$scenario|$what"]:-}" ] || die "nothing was compared with the row '$scenario | $what'"
  done < <(rows)
  printf '%s rows of the table, each compared\n' "${#compared[@]}"
}

# ---- history ---------------------------------------------------------------------------------------------------------------
# Every version of every job and pod as the API server had it.
watch_cluster() {
  "$KUBECTL" get tj --watch \
    -o 'jsonpath={.metadata.name}|{.status.attempt}|{.status.phase}|{.status.reason}{"\n"}' >"$dir/history" 2>"$dir/logs/watch.log" &
  "$KUBECTL" get pods --watch -o 'jsonpath={.metadata.name}|{.status.phase}|{.spec.nodeName}{"\n"}' \
    >"$dir/pods" 2>>"$dir/logs/watch.log" &
}
# What is waited for is looked up there, since a kubectl that starts takes as long as several steps of training.
latest() { grep "^$1|" "$dir/history" | tail -1; }
phase_is() {  # JOB PHASE
  local phase
  phase=$(latest "$1" | cut -d '|' -f 3)
  [ "$phase" != Failed ] || die "$1 has failed: $(latest "$1")"
  [ "$phase" = "$2" ]
}
attempt_ran() { grep -q "^$1|$2|Running|" "$dir/history"; }  # JOB ATTEMPT: now or before
now_of() { grep -c "^$1|" "$dir/history" || true; }  # a place in the history of a job
phases() {  # JOB [FROM]: the phases since that place, each once where several versions had it
  grep "^$1|" "$dir/history" | tail -n +"${2:-1}" | cut -d '|' -f 3 | uniq | xargs
}
reasons() { grep "^$1|" "$dir/history" | awk -F '|' -v phase="$2" '$3 == phase {print $4}' | uniq; }  # JOB PHASE
condition() { kubectl get tj "$1" -o "jsonpath={range .status.conditions[?(@.type==\"$2\")]}{.status} {.reason} {.message}{end}"; }
condition_is() { [[ $(condition "$1" "$2") == "$3"* ]]; }  # JOB TYPE BEGINNING
events() {  # JOB REASON
  kubectl get events --field-selector "involvedObject.kind=TrainingJob,involvedObject.name=$1,reason=$2" \
    -o 'jsonpath={range .items[*]}{.type} {.message}{"\n"}{end}'
}
node_is_lost() { [ "$(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = Unknown ]; }
restarts() { field "$1" '.status.restarts.user} {.status.restarts.infrastructure'; }
is_set() { [ -n "$(field "$1" "$2")" ]; }  # JOB PATH
job_is_gone() { [ -z "$(kubectl get tj "$1" --ignore-not-found -o name)" ]; }
pods_of_attempt() {  # JOB ATTEMPT JSONPATH
  kubectl get pods -l "$job_name=$1,trainyard.dev/attempt=$2" -o "jsonpath={range .items[*]}$3{\"\\n\"}{end}" | sort | xargs
}
pods_of() { kubectl get pods -l "$job_name=$1" -o name | xargs; }
no_pods() { [ -z "$(pods_of "$1")" ]; }

# ---- checkpoints on disk ---------------------------------------------------------------------------------------------------
checkpoints() { printf '%s' "$dir/volumes/$(volume_of "$1")/$1"; }  # JOB: its directory
volume_of() { cat "$dir/jobs/$1"; }
# "" where there is none.
steps_on_disk() { { (cd "$(checkpoints "$1")" && ls -d step-*) 2>/dev/null || true; } | sed 's/step-0*//' | xargs; }
newest_on_disk() { steps_on_disk "$1" | awk '{print $NF}'; }
has_checkpoint() { [ -d "$(checkpoints "$1")/$(printf 'step-%08d' "$2")" ]; }  # JOB STEP
# What is staged and not committed, of one attempt.
staged() {  # JOB ATTEMPT
  { (cd "$(checkpoints "$1")/.staging" && ls -d ./*-"$2"/step-*) 2>/dev/null || true; } | sed 's/.*step-0*//' | xargs
}
is_staged() {  # JOB ATTEMPT [STEP]: something is, besides that step
  local step
  step=$(staged "$1" "$2")
  [ -n "$step" ] && [ "$step" != "${3:-}" ]
}
no_staging_of() { ! ls -d "$(checkpoints "$1")/.staging/"*"-$2" >/dev/null 2>&1; }
verified() {  # JOB: the steps of its checkpoints, every byte of which was read and compared with its hash
  "$bin/trainyard" checkpoints verify "$(checkpoints "$1")" --json >"$dir/verify.json" || true
  python3 -c '
import json, sys
found = sorted((int(c["path"].rpartition("-")[2]), c["valid"]) for c in json.load(open(sys.argv[1])))
print(*(str(step) if valid else f"{step}-is-bad" for step, valid in found))' \
    "$dir/verify.json"
}
writer_of() {  # JOB STEP: the attempt that saved it
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["attempt"])' \
    "$(checkpoints "$1")/$(printf 'step-%08d' "$2")/manifest.json"
}
saved_before() {  # JOB ATTEMPT: the newest checkpoint that an attempt before this one saved
  local step newest=""
  for step in $(steps_on_disk "$1"); do
    if [ "$(writer_of "$1" "$step")" -lt "$2" ]; then newest=$step; fi
  done
  printf '%s\n' "$newest"
}
# The last step that was trained, by the samples that ranks read.
steps_in() { cat "$@" | tr ',' '\n' | sed -n 's/.*"step":\([0-9]*\).*/\1/p' | sort -n | tail -1; }
last_step_before() {  # JOB ATTEMPT: that any attempt before this one has trained
  local attempt files=()
  for ((attempt = 1; attempt < $2; attempt++)); do files+=("$dir/volumes/samples/$1/samples-$attempt-"*.jsonl); done
  steps_in "${files[@]}"
}
last_step() { steps_in "$dir/volumes/samples/$1"/samples-*.jsonl; }
step_reached() {  # JOB STEP
  local step
  step=$(last_step "$1" 2>/dev/null) || return 1
  [ -n "$step" ] && [ "$step" -ge "$2" ]
}
# Whether a job read the samples of `full`, whose one attempt nothing stops: each once, and none (or some) a second time
# after a step that was lost.
samples() {  # JOB STEPS none|some
  python3 "$here/e2e_samples.py" "$dir/volumes/samples/$1" "$dir/volumes/samples/full" "$batch" "$2" "$3" >&2 && echo "each once" || echo "wrong"
}
same_state() {  # JOB: what the ranks held in memory before and after a resize
  local saved loaded
  saved=$(field "$1" .status.resize.savedHash) loaded=$(field "$1" .status.resize.loadedHash)
  if [ -n "$saved" ] && [ "$saved" = "$loaded" ]; then echo "the same"; else echo "saved '$saved', loaded '$loaded'"; fi
}
# Hardly more than one of so many parts, in words; of the small tensors here, whole blocks that were hashed weigh some.
share() {  # BYTES OF PARTS
  python3 -c '
import sys
read, whole, parts = map(int, sys.argv[1:])
words = {1: "all", 2: "half", 3: "a third", 4: "a fourth"}
print(words[parts] if 0.98 <= read * parts / whole <= 1.15 else f"{read / whole:.3f} of it")' "$@"
}

# ---- disks -----------------------------------------------------------------------------------------------------------------
# A volume that is a file system of its own, on a device of its own: it can be slow and full without anybody else.
make_disk() {  # NAME MEGABYTES
  mkdir -p "$dir/volumes/$1"
  truncate -s "$2M" "$dir/$1.disk"
  mkfs.ext4 -q -F -m 0 -O ^has_journal "$dir/$1.disk"
  mount -o loop "$dir/$1.disk" "$dir/volumes/$1"
  make_volume "$1"
}
device_of() { stat -c '%Hd:%Ld' "$dir/volumes/$1"; }
fill() { cat /dev/zero >"$dir/volumes/$1/filler" 2>/dev/null || true; }  # VOLUME
# The cgroups of the pods of a job in which writes are accounted.
io_cgroups() {  # JOB
  local root=/sys/fs/cgroup uid
  [ -e $root/cgroup.controllers ] || root=/sys/fs/cgroup/blkio
  for uid in $(kubectl get pods -l "$job_name=$1" -o 'jsonpath={.items[*].metadata.uid}'); do
    find $root -type d -path "*pod$uid/*"
  done
}
# From now on the pods of a job write to its checkpoints so many bytes per second each.
throttle() {  # JOB BYTES
  local group device
  device=$(device_of "$(volume_of "$1")")
  while read -r group; do
    if [ -e "$group/io.max" ]; then
      printf '%s wbps=%s' "$device" "$2" >"$group/io.max"
    else
      printf '%s %s' "$device" "$2" >"$group/blkio.throttle.write_bps_device"
    fi
    printf '%s\n' "$group" >>"$dir/throttled"
  done < <(io_cgroups "$1")
}
unthrottle() {  # VOLUME: whoever it was
  local group device
  device=$(device_of "$1")
  while read -r group; do
    if [ -e "$group/io.max" ]; then
      printf '%s wbps=max' "$device" >"$group/io.max" || true
    elif [ -d "$group" ]; then
      printf '%s 0' "$device" >"$group/blkio.throttle.write_bps_device" || true
    fi
  done < <(cat "$dir/throttled")
}

more_gpus() {
  local node
  for node in $(kubectl get nodes -o name); do
    kubectl patch "$node" --subresource=status --type=merge \
      -p "{\"status\":{\"capacity\":{\"nvidia.com/gpu\":\"$1\"},\"allocatable\":{\"nvidia.com/gpu\":\"$1\"}}}"
  done
}

# ---- jobs ------------------------------------------------------------------------------------------------------------------
batch=12
# A small Llama that reads bytes, on so many GPUs; MORE is JSON that goes over its spec, key by key.
job() {  # NAME VOLUME GPUS STEPS EVERY [MORE]
  mkdir -p "$dir/jobs" "$dir/volumes/samples/$1"
  printf '%s' "$2" >"$dir/jobs/$1"
  chown 65532 "$dir/volumes/samples/$1"
  python3 -c '
import json, sys
name, volume, gpus, steps, every, batch, more = sys.argv[1:]
spec = {
    "model": {"architecture": {"layers": 4, "hiddenSize": 128, "attentionHeads": 4}},
    "data": {"train": [{"volume": "corpus", "path": "train.txt"}]},
    "training": {"sequenceLength": 64, "globalBatchSize": int(batch), "microBatchSize": 1, "steps": int(steps), "precision": "FP32",
                 "schedule": {"type": "Constant"}},
    "parallelism": {"strategy": "FSDP"},
    "gpus": {"count": int(gpus)},
    "checkpoint": {"volume": volume, "every": {"steps": int(every)}, "keepLast": 3},
    "env": [{"name": "TRAINYARD_SAMPLE_LOG", "value": "/volumes/samples/" + name}],
    "volumes": [{"name": v, "persistentVolumeClaim": {"claimName": v}} for v in ("corpus", "samples", volume)]}
def over(under, above):
    for key, value in above.items():
        under[key] = over(under[key], value) if isinstance(value, dict) and isinstance(under.get(key), dict) else value
    return under
print(json.dumps({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
                  "spec": over(spec, json.loads(more))}))' "$1" "$2" "$3" "$4" "$5" "$batch" "${6:-{\}}" | kubectl apply -f -
}
# The steps of a job, from its next attempt on: so many more than it has come to.
last_steps() {  # JOB MORE
  known[steps]=$(($(last_step "$1") + $2))
  run kubectl patch tj "$1" --type=merge -p "{\"spec\":{\"training\":{\"steps\":${known[steps]}}}}"
}
# As many steps as take so long at the pace of a job, and as many as any of the others has at least.
lasting() {  # SECONDS JOB STEPS...
  python3 -c 'import sys; seconds, pace, *least = map(float, sys.argv[1:]); print(int(max(seconds / pace, *least)))' \
    "$1" "$(field "$2" .status.progress.stepSeconds)" "${@:3}"
}
# Slows the saves of a job down and waits for one that began after that: its files are there, and it is no checkpoint. Sets
# known[durable] and known[half], the step before and its own.
in_a_save() {  # JOB BYTES-PER-SECOND
  local attempt begun
  attempt=$(field "$1" .status.attempt)
  await 120 "$1 to have a checkpoint" eval '[ -n "$(steps_on_disk '"$1"')" ]'
  throttle "$1" "$2"
  begun=$(staged "$1" "$attempt")
  await 120 "$1 to be in a save" is_staged "$1" "$attempt" "$begun"
  known[half]=$(staged "$1" "$attempt")
  known[durable]=$(newest_on_disk "$1")
  [ -n "${known[half]}" ] && [ "${known[half]}" -gt "${known[durable]}" ] || die "the save of $1 is over already"
  printf 'ok: step %s of %s is being saved, step %s is durable\n' "${known[half]}" "$1" "${known[durable]}"
}
