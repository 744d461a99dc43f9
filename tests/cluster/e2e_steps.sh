# What e2e.sh is written in: waiting, expecting, and looking at jobs and pods. Source it after lib.sh, inside the run.
job_name=trainyard.dev/job-name

title() { printf '\n===== [%3d s] %s\n' "$SECONDS" "$*"; }
# Shows a command and runs it.
run() {
  printf '$ %s\n' "$(printf '%s ' "$@" | sed "s|$repository/||g; s|$dir/|DIR/|g; s|[^ ]*/helm |helm |; s|[^ ]*/bin/trainyard |trainyard |")"
  "$@"
}
kubectl() { "$KUBECTL" "$@"; }
die() {
  printf 'e2e: FAILED: %s\n' "$*" >&2
  { kubectl get tj,pods -A -o wide; kubectl describe tj; kubectl get events -A --sort-by .lastTimestamp | tail -n 40
    kubectl -n trainyard-system logs -l app.kubernetes.io/name=trainyard --prefix --tail=60; } >&2 || true
  exit 1
}
expect() {  # WHAT WANTED GOT
  [ "$2" = "$3" ] || die "$1: expected '$2', got '$3'"
  printf 'ok: %s: %s\n' "$1" "$3"
}
at_least() {
  [ "$3" -ge "$2" ] || die "$1: expected at least $2, got $3"
  printf 'ok: %s: %s\n' "$1" "$3"
}
contains() {
  grep -qF -- "$2" <<<"$1" || die "expected to read '$2'"
  printf 'ok: "%s"\n' "$2"
}
await() {  # SECONDS WHAT COMMAND...: until the command succeeds
  local patience=$1 what=$2 from=$SECONDS
  shift 2
  until "$@" >/dev/null; do
    [ $((SECONDS - from)) -lt "$patience" ] || die "waited $patience s for $what"
    sleep "${pause:-0.3}"
  done
  printf 'ok: %s, after %s s\n' "$what" $((SECONDS - from))
}

# ---- jobs and pods -------------------------------------------------------------------------------------------------------
field() { kubectl get tj "$1" -o "jsonpath={$2}"; }
pods() {  # JOB JSONPATH: of its pods in order of node rank, which is that of their names
  local all
  all=$(kubectl get pods -l "$job_name=$1" --sort-by .metadata.name -o "jsonpath={range .items[*]}$2{\"\\n\"}{end}")
  xargs <<<"$all"
}
phase_is() {  # JOB PHASE...
  local phase wanted
  phase=$(field "$1" .status.phase)
  for wanted in "${@:2}"; do
    [ "$phase" != "$wanted" ] || return 0
  done
  [ "$phase" != Failed ] || die "$1 has failed: $(field "$1" .status.reason)"
  return 1
}
running_on() { [ "$(field "$1" '.status.phase} {.status.gpus')" = "Running $2" ]; }
attempt_runs() { [ "$(field "$1" '.status.phase} {.status.attempt')" = "Running $2" ]; }
# What rank 0 says of itself, asked through the API server; "" while it cannot be asked. The job's own status says the same
# with up to 30 s of delay.
live() {  # JOB KEY.KEY...
  local attempt pod
  attempt=$(field "$1" .status.attempt)
  pod=$(kubectl get pods -l "$job_name=$1,trainyard.dev/attempt=$attempt,trainyard.dev/node-rank=0" -o name)
  [ -n "$pod" ] || return 0
  { kubectl get --raw "/api/v1/namespaces/default/pods/${pod#pod/}:8471/proxy/status" 2>/dev/null || echo '{}'; } |
    python3 -c '
import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1].split("."):
    value = value.get(key, "") if isinstance(value, dict) else ""
print(value)' "$2"
}
step_reached() {
  local step
  step=$(live "$1" step)
  [ -n "$step" ] && [ "$step" -ge "$2" ]
}
resumed_beyond() {
  local step
  step=$(live "$1" resumedFromStep)
  [ -n "$step" ] && [ "$step" -gt "$2" ]
}

# ---- what is applied -------------------------------------------------------------------------------------------------------
# A directory that every node shares, and the claim of the same name.
make_volume() {  # NAME
  mkdir -p "$dir/volumes/$1"
  chown 65532 "$dir/volumes/$1"
  kubectl apply -f - <<YAML
apiVersion: v1
kind: PersistentVolume
metadata: {name: $1}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteMany]
  storageClassName: shared
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: $dir/volumes/$1}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $1}
spec: {accessModes: [ReadWriteMany], storageClassName: shared, volumeName: $1, resources: {requests: {storage: 10Gi}}}
YAML
  kubectl wait --for=jsonpath='{.status.phase}'=Bound --timeout=30s "pvc/$1"
}
corpus() {
  bible gen1:1-rev22:21 >"$dir/bible.txt" || die "the package bible-kjv is not installed: run tests/setup.sh"
  local all held
  all=$(stat -c %s "$dir/bible.txt")
  held=$((all / 20))
  head -c $((all - held)) "$dir/bible.txt" >"$dir/volumes/corpus/train.txt"
  tail -c "$held" "$dir/bible.txt" >"$dir/volumes/corpus/held-out.txt"
}
# docs/examples/quickstart.yaml on 4 ranks, under another name, with a log of the samples that each rank reads.
quickstart() {
  mkdir -p "$dir/volumes/checkpoints/samples/$1"
  chown -R 65532 "$dir/volumes/checkpoints/samples"
  kubectl create --dry-run=client -o json -f "$repository/docs/examples/quickstart.yaml" | python3 -c '
import json, sys
job, name = json.load(sys.stdin), sys.argv[1]
job["metadata"] = {"name": name}
job["spec"]["gpus"]["count"] = 4
job["spec"]["training"]["steps"] = int(sys.argv[2])
job["spec"]["env"] = [{"name": "TRAINYARD_SAMPLE_LOG", "value": "/volumes/checkpoints/samples/" + name}]
print(json.dumps(job))' "$1" "$steps" | kubectl apply -f -
}
# A job of the user's image with a command of theirs, on both nodes, run to its end.
own_program() {  # NAME COMMAND...
  python3 -c '
import json, sys
name, image, *command = sys.argv[1:]
print(json.dumps({"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": {
    "model": {"parameters": "125M"}, "parallelism": {"strategy": "FSDP"}, "gpus": {"count": 4, "perNode": 2},
    "image": image, "command": command}}))' "$1" "$USER_IMAGE" "${@:2}" | kubectl apply -f -
  await 240 "$1 to end" phase_is "$1" Succeeded
}

# ---- checks ----------------------------------------------------------------------------------------------------------------
# From inside the container: who it is, what it may write, and that no credentials are there.
hardened() {
  local seen
  seen=$(kubectl exec "$1" -- sh -c '
    echo "user $(id -u), home $HOME"
    touch /root-is-writable 2>/dev/null && echo "writes to /" || echo "cannot write to /"
    touch /tmp/x /run/trainyard/x /dev/shm/x && echo "writes to /tmp, /run/trainyard, /dev/shm"
    [ -e /var/run/secrets ] && echo "has a token" || echo "has no token"
    grep -E "^(CapEff|NoNewPrivs|Seccomp):" /proc/self/status | tr -s "\t\n" "  "
    echo; env | grep -c "^TJ_" || true')
  printf '%s\n' "$seen"
  contains "$seen" "user 65532, home /tmp"
  contains "$seen" "cannot write to /"
  contains "$seen" "writes to /tmp, /run/trainyard, /dev/shm"
  contains "$seen" "has no token"
  contains "$seen" "CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2"
  expect "variables that Kubernetes makes of Services" 0 "$(tail -n 1 <<<"$seen")"
}
leader_pod() {
  local holder pod
  holder=$(kubectl -n trainyard-system get lease trainyard -o 'jsonpath={.spec.holderIdentity}' 2>/dev/null) || return 1
  for pod in $(kubectl -n trainyard-system get pods -o 'jsonpath={.items[*].metadata.name}'); do
    if [[ $holder == "$pod"* ]]; then
      printf '%s\n' "$pod"
      return 0
    fi
  done
  return 1
}
# SIGKILL from outside, as the kernel would do it, in the moment in which the phase is seen to be Resizing.
kill_leader_while_resizing() {  # JOB
  local pod uid pid phase
  pod=$(leader_pod) || die "nobody leads"
  uid=$(kubectl -n trainyard-system get pod "$pod" -o 'jsonpath={.metadata.uid}')
  for pid in $(pgrep -f trainyard-operator); do
    if [ "$(cat "/proc/$pid/comm")" = trainyard-opera ] && grep -q "pod$uid" "/proc/$pid/cgroup"; then break; fi
    pid=""
  done
  [ -n "$pid" ] || die "no process of $pod"
  while read -r phase; do
    if [ "$phase" = Resizing ]; then
      kill -KILL "$pid"
      printf 'ok: killed the operator of %s, process %s\n' "$pod" "$pid"
      return 0
    fi
  done < <(timeout 60 "$KUBECTL" get tj "$1" --watch -o 'jsonpath={.status.phase}{"\n"}')
  return 1
}
# The two jobs saw the same samples in the same order, on different numbers of ranks: only the rounding of sums differs.
same_loss() {  # JOB JOB
  python3 -c '
import sys
names, values = sys.argv[1:3], [[float(x) for x in v.split()] for v in sys.argv[3:5]]
worst = max(abs(a - b) / b for a, b in zip(*values))
print(f"training loss {values[0][0]:.4f} and {values[1][0]:.4f}, held-out loss {values[0][1]:.4f} and {values[1][1]:.4f} "
      f"({names[0]} and {names[1]}): {100 * worst:.2f} % apart")
sys.exit(worst > 0.01)' "$1" "$2" "$(field "$1" '.status.progress.loss} {.status.progress.validationLoss')" \
    "$(field "$2" '.status.progress.loss} {.status.progress.validationLoss')" || die "the losses are more than 1 % apart"
}
