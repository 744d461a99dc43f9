#!/usr/bin/env bash
# A real Kubernetes control plane for tests: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes
# with ports, certificates and directories of their own, and the CRD applied. No root and no container is needed.
#
#   tests/cluster/up.sh --dir DIR [--address IP] [--audit] [--audit-objects] [--while PID] [--no-crd] [--node-grace SECONDS]
#
#   --dir DIR      everything of this run; a run that is already there is taken down first
#   --address IP   also serve on this address, which must be one of this machine's (pods reach the API server through it)
#   --audit        write who did what to DIR/logs/audit.log (one JSON line per request, metadata only)
#   --audit-objects  the same, with pods, nodes and jobs as each write left them: their whole history is in the log
#   --while PID    take everything down when that process is gone
#   --no-crd       leave the CRD to the test (a chart brings it)
#   --node-grace SECONDS  a node that has not been heard of for so long is unreachable (default: 50, as Kubernetes has it;
#                  less asks for nodes that are heard more often: node.sh up --lease)
#
# Writes DIR/admin.kubeconfig (system:masters) and DIR/env (lines KEY=VALUE). Exits 0 when /readyz answers, 77 when this
# machine cannot run it (1 when TRAINYARD_REQUIRE_CLUSTER=1).
#
#   TRAINYARD_APISERVER_FLAGS   more flags for kube-apiserver
#   KUBEBUILDER_ASSETS          a directory with etcd and kube-apiserver to use instead of our build; a controller manager
#                               and a scheduler that it lacks come from our build
#   TRAINYARD_USE_KUBECONFIG=1  use the cluster of $KUBECONFIG and start nothing. A switch of its own, since many people have
#                               KUBECONFIG set and these tests create namespaces, nodes and cluster roles, and delete them
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$here/certificates.sh"

dir="" address="" audit="" while_pid="" crd=1 node_grace=""
while [ $# -gt 0 ]; do
  case $1 in
    --dir) dir=$2; shift 2 ;;
    --address) address=$2; shift 2 ;;
    --audit) audit='{level: Metadata}'; shift ;;
    --audit-objects)
      audit='{level: RequestResponse, verbs: [create, update, patch, delete, deletecollection], resources: [{group: "", resources: [pods, pods/*, nodes, nodes/*]}, {group: trainyard.dev}]}, {level: None}'
      shift ;;
    --while) while_pid=$2; shift 2 ;;
    --no-crd) crd=0; shift ;;
    --node-grace) node_grace=$2; shift 2 ;;
    *) die "up.sh does not know $1; see the head of this script" ;;
  esac
done
dir=$(run_dir "$dir")
started=$(date +%s.%N)
if [ -e "$dir" ]; then
  [ -e "$dir/.trainyard-cluster" ] || [ -z "$(ls -A "$dir")" ] || die "$dir is not empty and not a run of ours: name another"
  bash "$here/down.sh" --dir "$dir"
fi
mkdir -p "$dir/logs"
: >"$dir/.trainyard-cluster"

# ---- the programs --------------------------------------------------------------------------------------------------
built=$(controlplane_dir)
bin() {  # bin NAME: from KUBEBUILDER_ASSETS when it is there, else ours
  if [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$1" ]; then
    printf '%s/%s' "$KUBEBUILDER_ASSETS" "$1"
  else
    printf '%s/%s' "$built" "$1"
  fi
}
for part in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do
  if [ ! -x "$(bin $part)" ]; then
    bash "$here/setup.sh" controlplane
    break
  fi
done
for tool in openssl curl ss setsid; do
  command -v $tool >/dev/null || cannot "no $tool on this machine: run tests/setup.sh"
done
kubectl=$(bin kubectl)

write_env() {  # write_env SERVER: what a test program wants to know
  {
    printf 'KUBECONFIG=%s\n' "$dir/admin.kubeconfig"
    printf 'TRAINYARD_TEST_KUBECONFIG=%s\n' "$dir/admin.kubeconfig"
    printf 'TRAINYARD_TEST_APISERVER=%s\n' "$1"
    printf 'TRAINYARD_TEST_ETCD=%s\n' "${2:-}"
    printf 'KUBECTL=%s\n' "$kubectl"
    printf 'HELM=%s\n' "$cache/helm-4.1.4/helm"
  } >"$dir/env.part"
  mv "$dir/env.part" "$dir/env"
}
apply_crd() {
  [ $crd = 1 ] || return 0
  local admin=(--kubeconfig "$dir/admin.kubeconfig")
  "$kubectl" "${admin[@]}" apply --server-side -f "$repository/crds/trainingjobs.yaml" >/dev/null ||
    die "the API server refuses crds/trainingjobs.yaml (--no-crd leaves it out)"
  # A moment after it was made its conditions may be null, of which kubectl says that this is no list.
  local error tries=0
  until error=$("$kubectl" "${admin[@]}" wait --for=condition=Established --timeout=90s crd/trainingjobs.trainyard.dev 2>&1); do
    [[ $error == *"accessor error"* ]] && [ $((tries += 1)) -lt 100 ] || die "the CRD is not served: $error"
    sleep 0.1
  done
}

if [ "${TRAINYARD_USE_KUBECONFIG:-}" = 1 ]; then
  (umask 077; "$kubectl" config view --flatten --minify --raw >"$dir/admin.kubeconfig")
  server=$("$kubectl" --kubeconfig "$dir/admin.kubeconfig" config view -o 'jsonpath={.clusters[0].cluster.server}')
  "$kubectl" --kubeconfig "$dir/admin.kubeconfig" get --raw /readyz >/dev/null ||
    die "TRAINYARD_USE_KUBECONFIG=1, but the cluster at $server does not answer"
  apply_crd
  write_env "$server"
  say "using the cluster of KUBECONFIG at $server"
  exit 0
fi

# ---- certificates --------------------------------------------------------------------------------------------------
pki="$dir/pki"
make_authority "$pki"
names="DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
names="$names,IP:127.0.0.1,IP:::1,IP:10.96.0.1${address:+,IP:$address}"
make_certificate "$pki" apiserver "/CN=kube-apiserver" "$names"
make_certificate "$pki" admin "/O=system:masters/CN=trainyard-test-admin"
make_certificate "$pki" kubelet-client "/O=system:masters/CN=kube-apiserver-kubelet-client"
make_certificate "$pki" controller-manager "/CN=system:kube-controller-manager"
make_certificate "$pki" scheduler "/CN=system:kube-scheduler"
openssl genrsa -out "$pki/service-account.key" 2048 2>/dev/null
openssl rsa -in "$pki/service-account.key" -pubout -out "$pki/service-account.pub" 2>/dev/null

# ---- etcd ------------------------------------------------------------------------------------------------------------
# The token names this etcd: another run that took our port first would show another one.
token="trainyard-$$-$RANDOM$RANDOM"
etcd_up() {
  local client peer
  client=$(free_port) peer=$(free_port)
  etcd_url="http://127.0.0.1:$client"
  rm -rf "$dir/etcd"
  start_part "$dir" etcd "$(bin etcd)" --name "$token" --data-dir "$dir/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls "$etcd_url" --advertise-client-urls "$etcd_url" --listen-peer-urls "http://127.0.0.1:$peer" \
    --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "$token=http://127.0.0.1:$peer" \
    --quota-backend-bytes 4294967296
  for _ in $(seq 300); do
    [ -n "$(part_pid "$dir" etcd)" ] || return 1
    if curl -s -m 2 -X POST "$etcd_url/v3/cluster/member/list" -d '{}' 2>/dev/null | grep -qF "\"name\":\"$token\""; then
      return 0
    fi
    sleep 0.1
  done
  return 1
}

# ---- the API server --------------------------------------------------------------------------------------------------
apiserver_up() {
  local port bind=127.0.0.1 more=()
  port=$(free_port)
  [ -z "$address" ] || bind=0.0.0.0
  server="https://127.0.0.1:$port"
  if [ -n "$audit" ]; then
    printf 'apiVersion: audit.k8s.io/v1\nkind: Policy\nomitManagedFields: true\nomitStages: [RequestReceived]\nrules: [%s]\n' \
      "$audit" >"$dir/audit-policy.yaml"
    more+=(--audit-policy-file "$dir/audit-policy.yaml" --audit-log-path "$dir/logs/audit.log" --audit-log-maxsize 2000)
  fi
  # Words on purpose: the variable holds several flags.
  # shellcheck disable=SC2206
  more+=(${TRAINYARD_APISERVER_FLAGS:-})
  start_part "$dir" kube-apiserver "$(bin kube-apiserver)" --etcd-servers "$etcd_url" --secure-port "$port" \
    --bind-address "$bind" --advertise-address "${address:-127.0.0.1}" --authorization-mode Node,RBAC \
    --client-ca-file "$pki/ca.crt" --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" \
    --kubelet-client-certificate "$pki/kubelet-client.crt" --kubelet-client-key "$pki/kubelet-client.key" \
    --kubelet-certificate-authority "$pki/ca.crt" --kubelet-preferred-address-types InternalIP,Hostname \
    --service-account-issuer https://kubernetes.default.svc.cluster.local \
    --service-account-key-file "$pki/service-account.pub" --service-account-signing-key-file "$pki/service-account.key" \
    --service-cluster-ip-range 10.96.0.0/16 --allow-privileged=true --enable-admission-plugins NodeRestriction \
    --profiling=false "${more[@]}"
  for _ in $(seq 600); do
    [ -n "$(part_pid "$dir" kube-apiserver)" ] || return 1
    # Only our authority is trusted, so only our server can answer.
    if [ "$(curl -s -m 2 --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key" "$server/readyz")" = ok ]; then
      return 0
    fi
    sleep 0.1
  done
  return 1
}

try_up() {  # try_up NAME FUNCTION: three times, since another run may take a port between our look and our use
  local attempt
  for attempt in 1 2 3; do
    "$2" && return 0
    say "$1 did not come up on attempt $attempt; its last words: $(tail -n 1 "$dir/logs/$1.log" | cut -c1-300)"
    stop_part "$dir" "$1" 2
  done
  tail -n 20 "$dir/logs/$1.log" >&2 || true
  die "$1 does not start; its log is $dir/logs/$1.log"
}
up=0
trap '[ $up = 1 ] || bash "$here/down.sh" --dir "$dir" --keep-logs >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM
try_up etcd etcd_up
# A few versions before the API server looks: its watch caches then begin later than version 1, which has expired for
# whoever asks, as on any cluster that has lived for a moment.
for _ in 1 2 3 4; do
  curl -sf -m 5 -X POST "$etcd_url/v3/kv/put" -d '{"key": "dHJhaW55YXJk", "value": "MQ=="}' >/dev/null || die "etcd took no value"
done
try_up kube-apiserver apiserver_up
write_kubeconfig "$dir/admin.kubeconfig" "$server" "$pki/ca.crt" "$pki/admin.crt" "$pki/admin.key"

# ---- scheduler and controller manager: they serve nothing here; limits are lifted so that they are never what is measured --
for part in controller-manager scheduler; do
  write_kubeconfig "$dir/$part.kubeconfig" "$server" "$pki/ca.crt" "$pki/$part.crt" "$pki/$part.key"
done
node_flags=()
[ -z "$node_grace" ] || node_flags=(--node-monitor-grace-period "${node_grace}s" --node-monitor-period 1s)
start_part "$dir" kube-controller-manager "$(bin kube-controller-manager)" --kubeconfig "$dir/controller-manager.kubeconfig" \
  --secure-port 0 --leader-elect=false --use-service-account-credentials=true --root-ca-file "$pki/ca.crt" \
  --service-account-private-key-file "$pki/service-account.key" --kube-api-qps 1000 --kube-api-burst 2000 \
  --concurrent-gc-syncs 20 --controllers '*,-nodeipam,-node-route-controller,-cloud-node-lifecycle-controller' \
  --profiling=false "${node_flags[@]}"
start_part "$dir" kube-scheduler "$(bin kube-scheduler)" --kubeconfig "$dir/scheduler.kubeconfig" --secure-port 0 \
  --leader-elect=false --kube-api-qps 1000 --kube-api-burst 2000 --profiling=false

apply_crd
# Pods can be created once the controller manager has made the service account.
ready=0
for _ in $(seq 900); do
  if "$kubectl" --kubeconfig "$dir/admin.kubeconfig" -n default get serviceaccount default >/dev/null 2>&1; then
    ready=1
    break
  fi
  for part in kube-controller-manager kube-scheduler; do
    [ -n "$(part_pid "$dir" $part)" ] || die "$part does not start: $(tail -n 3 "$dir/logs/$part.log")"
  done
  sleep 0.1
done
[ $ready = 1 ] || die "the controller manager made no service account within 90 s; see $dir/logs"
write_env "$server" "$etcd_url"

if [ -n "$while_pid" ]; then
  start_part "$dir" watchdog bash -c 'while kill -0 "$1" 2>/dev/null; do sleep 1; done; rm -f "$2/pids/watchdog"; exec bash "$3" --dir "$2"' \
    watchdog "$while_pid" "$dir/" "$here/down.sh"
fi
up=1
say "ready at $server after $(awk -v a="$started" -v b="$(date +%s.%N)" 'BEGIN {printf "%.1f", b - a}') s; export KUBECONFIG=$dir/admin.kubeconfig"
