#!/usr/bin/env bash
# Real nodes for tests: containerd and a kubelet each, as processes, with directories, a bridge, a pod network, ports and
# cgroups of their own, and GPUs that the API server believes in. Root is needed.
#
#   node.sh check                     exits 77 and says why where no node can run
#   node.sh network --dir DIR         the bridge whose address the API server (up.sh --address) and the nodes take; prints it
#   node.sh up --dir DIR --name NAME --index N [--gpus 2] [--product P] [--label K=V]... [--image FILE]... [--lease SECONDS]
#                                     a node that is Ready; N (1..250) picks its bridge tyN and its pods' 10.200.N.0/24;
#                                     images are docker-archives; it is heard of every quarter of its lease (40 s)
#   node.sh power-off --dir DIR --name NAME
#                                     what a power cut leaves: its pods are off the network at once and say good-bye to
#                                     nobody, then no process of it runs any more; `down` still cleans up
#   node.sh services --dir DIR        kube-proxy and CoreDNS for the pods of all nodes: 10.96.0.1 and names work
#   node.sh down --dir DIR (--name NAME | --all)
#                                     pods, then processes, mounts, bridges, cgroups; safe to run twice
#
# Bridges, the pod network and kube-proxy's rules are the machine's: two runs at once need a network namespace each,
# for which a script starts itself in: unshare --net --mount --pid --fork --mount-proc --propagation private
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$here/certificates.sh"

address=10.200.0.1
pause_image=localhost/trainyard-pause:1

check() {
  local tool
  [ "$(uname -s)" = Linux ] || cannot "nodes run on Linux only"
  [ "$(id -u)" = 0 ] || cannot "a node needs root (containers, bridges, cgroups)"
  for tool in containerd ctr runc ip iptables conntrack gcc openssl; do
    command -v "$tool" >/dev/null || cannot "a node needs $tool: run tests/setup.sh"
  done
  [ -x /usr/lib/cni/bridge ] || cannot "a node needs the network plug-ins in /usr/lib/cni: run tests/setup.sh"
  [ -d /sys/fs/cgroup ] && [ -w /sys/fs/cgroup ] || cannot "a node needs a writable /sys/fs/cgroup"
}

# The container that holds a pod's namespaces: one static program in an archive made by hand, since no registry is needed
# for anything here.
pause_archive() {
  local out="$cache/images/pause.tar" work id
  if [ ! -s "$out" ]; then
    mkdir -p "$cache/images"
    work=$(mktemp -d "$cache/images/pause.XXXXXX")
    cat >"$work/pause.c" <<'C'
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int s) { (void)s; _exit(0); }
static void reap(int s) { (void)s; while (waitpid(-1, 0, WNOHANG) > 0) {} }
int main(void) { signal(SIGTERM, end); signal(SIGINT, end); signal(SIGCHLD, reap); for (;;) pause(); }
C
    gcc -static -Os -s -o "$work/pause" "$work/pause.c"
    tar -C "$work" --owner=0 --group=0 --mtime=@0 -cf "$work/layer.tar" pause
    id=$(sha256sum <"$work/layer.tar" | cut -d' ' -f1)
    printf '{"architecture":"amd64","os":"linux","config":{"Entrypoint":["/pause"],"User":"65535:65535"},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
      "$id" >"$work/config.json"
    printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$pause_image" >"$work/manifest.json"
    tar -C "$work" -cf "$work/pause.tar" manifest.json config.json layer.tar
    mv "$work/pause.tar" "$out"  # whole or not at all; two nodes at once make the same one
    rm -rf "$work"
  fi
  printf '%s' "$out"
}

# In every hierarchy of cgroup v1, or in the one of v2. Cgroups are in no namespace of ours, so the run's directory is in
# the name.
cgroup_name() { printf 'trainyard-%s-%s' "$(printf '%s' "$dir" | sha256sum | cut -c1-8)" "$1"; }
cgroup_dirs() {
  local hierarchy
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    printf '%s\n' "/sys/fs/cgroup/$1"
    return 0
  fi
  for hierarchy in /sys/fs/cgroup/*/; do
    [ -e "$hierarchy/cgroup.procs" ] && [ ! -e "$hierarchy/cgroup.controllers" ] && printf '%s\n' "$hierarchy$1"
  done
  return 0
}
make_cgroups() {
  local group parent controller
  while read -r group; do
    mkdir -p "$group"
    parent=$(dirname "$group")
    if [ -e "$parent/cgroup.controllers" ]; then
      for controller in cpu cpuset io memory pids; do
        printf '+%s' "$controller" >"$parent/cgroup.subtree_control" 2>/dev/null || true
        printf '+%s' "$controller" >"$group/cgroup.subtree_control" 2>/dev/null || true
      done
    elif [ -e "$parent/cpuset.cpus" ]; then
      cat "$parent/cpuset.cpus" >"$group/cpuset.cpus"
      cat "$parent/cpuset.mems" >"$group/cpuset.mems"
    fi
  done < <(cgroup_dirs "$1")
}
remove_cgroups() {
  local group pid
  while read -r group; do
    [ -d "$group" ] || continue
    # What is still in there is a container's process: nothing else was ever put in.
    while read -r pid; do
      [ "$pid" = 0 ] || kill -KILL "$pid" 2>/dev/null || true
    done < <(find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null)
    for _ in $(seq 50); do
      find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
      [ -d "$group" ] || break
      sleep 0.1
    done
  done < <(cgroup_dirs "$1"; printf '/sys/fs/cgroup/unified/%s\n' "$1")  # v1 with v2 beside it: the kubelet uses both
}

network() {
  ip link show ty0 >/dev/null 2>&1 || ip link add ty0 type bridge
  ip addr replace "$address/24" dev ty0
  ip link set ty0 up
  ip link set lo up
  sysctl -qw net.ipv4.ip_forward=1
  # A bridge of ours is not filtered by a firewall of the machine that drops what it forwards.
  iptables -C FORWARD -s 10.200.0.0/16 -j ACCEPT 2>/dev/null || iptables -I FORWARD -s 10.200.0.0/16 -j ACCEPT
  iptables -C FORWARD -d 10.200.0.0/16 -j ACCEPT 2>/dev/null || iptables -I FORWARD -d 10.200.0.0/16 -j ACCEPT
  printf '%s\n' "$address"
}

node_up() {
  check
  [[ $name =~ ^[a-z0-9-]+$ ]] && [[ $index =~ ^[0-9]+$ ]] && [ "$index" -ge 1 ] && [ "$index" -le 250 ] ||
    die "node.sh up needs --name NAME (a-z, 0-9, -) and --index N (1..250)"
  [ -e "$dir/admin.kubeconfig" ] || die "$dir has no control plane: tests/cluster/up.sh --dir $dir --address \$(tests/cluster/node.sh network --dir $dir)"
  local node="$dir/nodes/$name" group image server
  mkdir -p "$node"/{containerd,kubelet,logs,cni}
  printf '%s' "$index" >"$node/index"

  # containerd
  cat >"$node/cni/10-net.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "net-$name", "plugins": [
  {"type": "bridge", "bridge": "ty$index", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$node/ipam", "subnet": "10.200.$index.0/24", "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
JSON
  # restrict_oom_score_adj: without CAP_SYS_RESOURCE every pod would fail with "can't get final child's PID from pipe".
  cat >"$node/containerd.toml" <<TOML
version = 2
root = "$node/containerd/root"
state = "$node/containerd/state"
[grpc]
  address = "$node/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  sandbox_image = "$pause_image"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$node/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.internal.v1.opt"]
  path = "$node/containerd/opt"
TOML
  start_part "$dir" "$name-containerd" containerd --config "$node/containerd.toml"
  ctr=(ctr --address "$node/containerd.sock" --namespace k8s.io)
  for _ in $(seq 300); do
    "${ctr[@]}" version >/dev/null 2>&1 && break
    [ -n "$(part_pid "$dir" "$name-containerd")" ] || die "containerd of $name does not start: $(tail -n 1 "$dir/logs/$name-containerd.log")"
    sleep 0.1
  done
  for image in "$(pause_archive)" "${images[@]}"; do
    "${ctr[@]}" images import "$image" >/dev/null || die "$name cannot import the image $image"
  done

  # kubelet
  group=$(cgroup_name "$name")
  printf '%s' "$group" >"$node/cgroup"
  make_cgroups "$group"
  make_certificate "$dir/pki" "kubelet-$name" "/O=system:nodes/CN=system:node:$name" "DNS:$name,IP:$address"
  server=$("${kubectl[@]}" config view -o 'jsonpath={.clusters[0].cluster.server}')
  write_kubeconfig "$node/kubeconfig" "https://$address:${server##*:}" "$dir/pki/ca.crt" \
    "$dir/pki/kubelet-$name.crt" "$dir/pki/kubelet-$name.key"
  cat >"$node/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $address
port: $(free_port)
healthzPort: $(free_port)
readOnlyPort: 0
containerRuntimeEndpoint: unix://$node/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$group
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
podLogsDir: $node/logs
clusterDNS: [$address]
clusterDomain: cluster.local
resolvConf: /dev/null
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $dir/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $dir/pki/kubelet-$name.crt
tlsPrivateKeyFile: $dir/pki/kubelet-$name.key
evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, imagefs.available: 1Mi}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 5s
nodeLeaseDurationSeconds: $lease
YAML
  start_part "$dir" "$name-kubelet" "$built/kubelet" --config "$node/kubelet.yaml" --kubeconfig "$node/kubeconfig" \
    --root-dir "$node/kubelet" --cert-dir "$node/kubelet/pki" --hostname-override "$name" --node-ip "$address"
  for _ in $(seq 600); do
    "${kubectl[@]}" get node "$name" >/dev/null 2>&1 && break
    [ -n "$(part_pid "$dir" "$name-kubelet")" ] || die "the kubelet of $name does not start: $(grep -a '^E\|err=' "$dir/logs/$name-kubelet.log" | tail -n 1)"
    sleep 0.2
  done

  # What a GPU feature discovery and a device plug-in would say. An extended resource that was patched in stays: the kubelet
  # resets only those of its own plug-ins.
  "${kubectl[@]}" label --overwrite node "$name" nvidia.com/gpu.present=true "nvidia.com/gpu.product=$product" \
    "nvidia.com/gpu.count=$gpus" "nvidia.com/gpu.memory=$(($(awk '/MemTotal/ {print $2}' /proc/meminfo) / 1024 / (gpus > 0 ? gpus : 1)))" \
    "${labels[@]}" >/dev/null
  "${kubectl[@]}" patch node "$name" --subresource=status --type=merge -p \
    "{\"status\":{\"capacity\":{\"nvidia.com/gpu\":\"$gpus\"},\"allocatable\":{\"nvidia.com/gpu\":\"$gpus\"}}}" >/dev/null
  "${kubectl[@]}" wait --for=condition=Ready --timeout=120s "node/$name" >/dev/null ||
    die "$name does not become Ready; see $dir/logs/$name-kubelet.log"
  say "node $name is Ready with $gpus GPUs ($product)"
}

services() {
  local coredns
  coredns=$(program_dir coredns)/coredns
  [ -x "$coredns" ] || bash "$here/setup.sh" coredns
  # Nothing is forwarded: an unknown name is refused at once, where no answer would make resolvers wait. In a block of its
  # own, since CoreDNS asks template before kubernetes whatever the order here.
  cat >"$dir/Corefile" <<CORE
cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {
  bind $address
  errors
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig $dir/admin.kubeconfig
    ttl 5
  }
}
.:53 {
  bind $address
  template ANY ANY . {
    rcode NXDOMAIN
  }
}
CORE
  start_part "$dir" coredns "$coredns" -conf "$dir/Corefile"
  start_part "$dir" kube-proxy "$built/kube-proxy" --kubeconfig "$dir/admin.kubeconfig" --proxy-mode iptables \
    --conntrack-max-per-core 0 --hostname-override "${name:-node-a}" --cluster-cidr 10.200.0.0/16 --healthz-bind-address "" \
    --metrics-bind-address "127.0.0.1:$(free_port)"
  for _ in $(seq 300); do
    iptables -t nat -L KUBE-SERVICES -n 2>/dev/null | grep -q 10.96.0.1 && ss -Hlun "sport = :53" | grep -q "$address" && break
    for part in coredns kube-proxy; do
      [ -n "$(part_pid "$dir" $part)" ] || die "$part does not start: $(tail -n 1 "$dir/logs/$part.log")"
    done
    sleep 0.1
  done
  say "10.96.0.1 and names work for pods"
}

# The processes of a node, besides its pods': they outlive the kubelet and containerd, whose shims hold them.
kill_shims() {  # NODE-DIR
  local pid
  for pid in $(pgrep -f -- "containerd-shim.* -address $1/containerd.sock" || true); do
    kill -KILL "$pid" 2>/dev/null || true
  done
}
power_off() {
  local node="$dir/nodes/$name" group part pid
  [ -n "$name" ] && [ -d "$node" ] || die "node.sh power-off needs --name NAME of a node that is up"
  ip link set "ty$(cat "$node/index")" down
  for part in "$name-kubelet" "$name-containerd"; do
    pid=$(part_pid "$dir" "$part")
    [ -z "$pid" ] || kill -KILL "$pid"
  done
  kill_shims "$node"
  while read -r group; do
    while read -r pid; do
      [ "$pid" = 0 ] || kill -KILL "$pid" 2>/dev/null || true
    done < <(find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u)
  done < <(cgroup_dirs "$(cat "$node/cgroup")")
  say "the power of $name is off"
}

node_down() {
  local name=$1 node="$dir/nodes/$1" index mount
  [ -d "$node" ] || return 0
  index=$(cat "$node/index" 2>/dev/null || true)
  # Pods outlive their kubelet and containerd, so they go first, by the kubelet's own hand if it still has one.
  if [ -n "$(part_pid "$dir" "$name-kubelet")" ] && [ -n "$(part_pid "$dir" kube-apiserver)" ]; then
    "${kubectl[@]}" cordon "$name" >/dev/null 2>&1 || true
    "${kubectl[@]}" delete pods --all-namespaces --field-selector "spec.nodeName=$name" --grace-period=1 --wait=true \
      --timeout=20s >/dev/null 2>&1 || true
  fi
  stop_part "$dir" "$name-kubelet" 3
  "${kubectl[@]}" delete node "$name" --wait=false >/dev/null 2>&1 || true
  kill_shims "$node"
  remove_cgroups "$(cat "$node/cgroup" 2>/dev/null || cgroup_name "$name")"
  stop_part "$dir" "$name-containerd" 3
  while read -r mount; do
    umount -l -- "$mount" 2>/dev/null || true
  done < <(awk -v d="$node/" 'index($2, d) == 1 {print $2}' /proc/mounts | sort -r)
  [ -z "$index" ] || ip link delete "ty$index" 2>/dev/null || true
  rm -rf "$node"
}

down() {
  local node
  if [ $all = 0 ]; then
    [ -n "$name" ] || die "node.sh down needs --name NAME or --all"
    node_down "$name"
    return 0
  fi
  for node in "$dir"/nodes/*/; do
    [ -d "$node" ] && node_down "$(basename "$node")"
  done
  if [ -f "$dir/pids/kube-proxy" ]; then
    stop_part "$dir" kube-proxy 2
    "$built/kube-proxy" --cleanup >/dev/null 2>&1 || true
    iptables -D INPUT -j KUBE-FIREWALL 2>/dev/null || true  # the one chain that it leaves
    iptables -D OUTPUT -j KUBE-FIREWALL 2>/dev/null || true
    iptables -F KUBE-FIREWALL 2>/dev/null && iptables -X KUBE-FIREWALL || true
  fi
  stop_part "$dir" coredns 1
  iptables -D FORWARD -s 10.200.0.0/16 -j ACCEPT 2>/dev/null || true
  iptables -D FORWARD -d 10.200.0.0/16 -j ACCEPT 2>/dev/null || true
  ip link delete ty0 2>/dev/null || true
  rm -rf "$dir/nodes"
}

usage="node.sh check|network|up|power-off|services|down; see the head of this script"
[ $# -gt 0 ] || die "$usage"
action=$1
shift
dir="" name="" index="" gpus=2 product=trainyard-simulated lease=40 all=0 labels=() images=()
while [ $# -gt 0 ]; do
  case $1 in
    --dir) dir=$2; shift 2 ;;
    --name) name=$2; shift 2 ;;
    --index) index=$2; shift 2 ;;
    --gpus) gpus=$2; shift 2 ;;
    --product) product=$2; shift 2 ;;
    --label) labels+=("$2"); shift 2 ;;
    --image) images+=("$2"); shift 2 ;;
    --lease) lease=$2; shift 2 ;;
    --all) all=1; shift ;;
    *) die "$usage; it does not know $1" ;;
  esac
done
built=$(controlplane_dir)
if [ "$action" != check ]; then
  dir=$(run_dir "$dir")
  kubectl=("$built/kubectl" --kubeconfig "$dir/admin.kubeconfig")
fi
case $action in
  check) check ;;
  network) network ;;
  up) node_up ;;
  power-off) power_off ;;
  services) services ;;
  down) down ;;
  *) die "$usage" ;;
esac
