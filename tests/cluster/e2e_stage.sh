# The stage of the stories on real nodes: options, a run in namespaces of its own, the nodes, the operator from its chart.
# Source it after lib.sh.

# enter SCRIPT OPTIONS...: reads the options that such a script has, starts it again in namespaces of its own, and does not
# return there; returns inside of them, with `bin`, `dir` and `shell` set and the images' names known.
enter() {
  local script keep=0 inside=0
  script=$(realpath "$1")
  shift
  bin=$repository/build/release/bin shell=0 dir=""
  while [ $# -gt 0 ]; do
    case $1 in
      --bin) bin=$(realpath "$2"); shift 2 ;;
      --keep) keep=1; shift ;;
      --shell) shell=1; shift ;;
      --inside) inside=1 dir=$2; shift 2 ;;
      *) die "$(basename "$script") does not know $1: --bin DIR, --keep, --shell" ;;
    esac
  done
  if [ $inside = 1 ]; then
    source "$dir.images"
    return 0
  fi
  bash "$here/node.sh" check || exit
  local program child="" status=0
  for program in trainyard trainyard-operator trainyard-launch trainyard-trainer trainyard-generate; do
    [ -x "$bin/$program" ] || die "$bin/$program is not there: build the release preset first, or pass --bin DIR"
  done
  bash "$here/setup.sh" controlplane helm coredns || exit
  dir=$(mktemp -d "${TMPDIR:-/tmp}/trainyard-e2e.XXXXXX")
  bash "$here/images.sh" --bin "$bin" >"$dir.images" || { status=$?; rm -rf "$dir" "$dir.images"; exit $status; }
  clean() {
    [ -z "$child" ] || kill -KILL "$child" 2>/dev/null || true
    [ -z "$child" ] || wait "$child" 2>/dev/null || true
    bash "$here/node.sh" down --dir "$dir" --all >/dev/null 2>&1 || true  # cgroups are in no namespace
    rm -f "$dir.images"
    if [ $keep = 1 ]; then printf 'e2e: kept %s\n' "$dir"; else rm -rf "$dir"; fi
  }
  trap clean EXIT
  trap 'exit 130' INT TERM
  unshare --net --mount --pid --fork --mount-proc --propagation private --kill-child \
    bash "$script" --inside "$dir" --bin "$bin" $([ $shell = 0 ] || echo --shell) &
  child=$!
  wait "$child" || status=$?
  child=""
  exit $status
}

# start_nodes COUNT IMAGES [GRACE]: the control plane and node-1 to node-COUNT with 2 GPUs each; IMAGES are archives. With
# GRACE a node that has not been heard of for so many seconds is unreachable, where Kubernetes waits for 50.
start_nodes() {
  local address index node nodes=() images=() image
  for image in $2; do images+=(--image "$image"); done
  address=$(bash "$here/node.sh" network --dir "$dir")
  bash "$here/up.sh" --dir "$dir" --address "$address" --no-crd ${3:+--node-grace "$3"}
  source "$dir/env"
  export KUBECONFIG
  for ((index = 1; index <= $1; index++)); do
    bash "$here/node.sh" up --dir "$dir" --name "node-$index" --index "$index" --gpus 2 "${images[@]}" ${3:+--lease 8} &
    nodes+=($!)
  done
  for node in "${nodes[@]}"; do wait "$node"; done
  bash "$here/node.sh" services --dir "$dir" --name node-1
  run kubectl get nodes -L nvidia.com/gpu.product -o wide
}

install_operator() {
  run "$HELM" install trainyard "$repository/charts/trainyard" --namespace trainyard-system --create-namespace \
    --set "image.registry=localhost,image.repository=trainyard-operator,image.tag=${OPERATOR_IMAGE##*:},image.pullPolicy=Never" \
    --set "trainer.image.registry=localhost,trainer.image.repository=trainyard-trainer,trainer.image.tag=${TRAINER_IMAGE##*:}" \
    --set trainer.cpuPerGPU=300m --wait --timeout 90s
  run kubectl -n trainyard-system get pods -o wide
  expect "operator replicas ready" 2 "$(kubectl -n trainyard-system get deployment trainyard -o 'jsonpath={.status.readyReplicas}')"
  await 30 "a leader" leader_pod
}
