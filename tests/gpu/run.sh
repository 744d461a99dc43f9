#!/usr/bin/env bash
# Everything that takes a GPU to see, under 6 minutes: builds the plug-ins, runs NCCL with one rank and the engine at every
# stage against the CPU, compares predicted with measured memory for three sizes, tokens per second of a 1.1B Llama with
# PyTorch's FSDP2 on the same GPU, and shows how long a checkpoint stops training. Where there is no NVIDIA GPU it says so and
# ends with 0.
#
#   bash tests/gpu/run.sh [--json FILE] [--build DIR]
#       --json FILE   writes the rows in the form of docs/benchmarks (docs/benchmarks/gpu.json is this file of a run)
#       --build DIR   takes the programs from DIR, built elsewhere with -DTRAINYARD_BUILD_CUDA=ON, and compiles nothing
#
# Needs a Python with torch 2.11.0+cu130 and its nvidia packages, and, to compile, CUDA's headers (crt, cccl) and what
# tests/setup.sh installs. TRAINYARD_CUDA names the directory that holds nvidia/nccl and nvidia/cu13.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
say() { printf 'gpu: %s\n' "$*"; }
die() { printf 'gpu: %s\n' "$*" >&2; exit 1; }

json="" build=""
while [ $# -gt 0 ]; do
  case $1 in
    --json) json=${2:?--json needs a file}; shift 2 ;;
    --build) build=${2:?--build needs a directory}; shift 2 ;;
    *) die "unknown argument $1; see the head of this script" ;;
  esac
done

gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n1 || true)
if [ -z "$gpu" ]; then
  say "no NVIDIA GPU here (nvidia-smi names none): skipped"
  exit 0
fi
python=${PYTHON:-python3}
site=$("$python" -c 'import pathlib, torch; assert torch.__version__.startswith("2.11."), torch.__version__; print(pathlib.Path(torch.__file__).parents[1])') ||
  die "$python has no torch 2.11"
say "$gpu, PyTorch in $site"

if [ -z "$build" ]; then
  build=build/gpu
  cuda=${TRAINYARD_CUDA:-}
  for place in "$site" "${TRAINYARD_CACHE:-$HOME/.cache/trainyard}/cuda-13.0-nccl-2.28.9"; do
    [ -n "$cuda" ] || { [ -f "$place/nvidia/nccl/include/nccl.h" ] && [ -f "$place/nvidia/cu13/include/crt/host_config.h" ] && cuda=$place; } || true
  done
  [ -n "$cuda" ] || die "CUDA's headers (nvidia-cuda-crt, nvidia-cuda-cccl) are not here: set TRAINYARD_CUDA, or build elsewhere and give --build"
  cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DTRAINYARD_LIBTORCH="$site" -DTRAINYARD_CUDA="$cuda" \
    -DTRAINYARD_BUILD_CUDA=ON -DTRAINYARD_BUILD_TOKENIZERS=OFF >"$build.configure.log" 2>&1 || { cat "$build.configure.log" >&2; die "configuring failed"; }
  start=$SECONDS
  ninja -C "$build" trainyard_cuda trainyard_nccl gpu_plugin_test gpu_test gpu_bench trainyard-trainer trainyard-launch >"$build.log" 2>&1 ||
    { tail -n 40 "$build.log" >&2; die "building failed"; }
  say "built in $((SECONDS - start)) s"
fi
# The libraries of the wheel, wherever the programs were linked.
export LD_LIBRARY_PATH="$site/torch/lib:$(find "$site/nvidia" -maxdepth 2 -name lib -type d 2>/dev/null | paste -sd:)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export TRAINYARD_PLUGIN_DIR="$PWD/$build/bin"
case $build in /*) TRAINYARD_PLUGIN_DIR="$build/bin" ;; esac

"$build/tests/gpu_plugin_test"
"$build/tests/gpu_test"
"$python" tests/gpu/bench.py --build "$build" --gpu "$gpu" ${json:+--json "$json"}
say "done in $SECONDS s"
