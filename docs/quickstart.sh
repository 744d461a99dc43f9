#!/usr/bin/env bash
# The main job on one machine, with no cluster and no GPU: set-up, build, then a TrainingJob that is sized, placed, trained
# on 2 ranks, resized to 4 in the middle, finished, and whose checkpoints are verified.
#   bash docs/quickstart.sh [DIR]      DIR keeps text, checkpoints and logs (default: .trainyard/quickstart); emptied first
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=$(realpath -m "${1:-.trainyard/quickstart}")
bin=build/release/bin
job=docs/examples/quickstart.yaml
resize_at=200
ranks=4

say() { printf '\n== %s\n' "$*"; }
die() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }

say "Set-up: Debian packages, LibTorch (nothing to do the second time)"
bash tests/setup.sh

say "Build"
mkdir -p build
cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
cmake --build --preset release --parallel "$(nproc)" --target trainyard trainyard-launch trainyard-trainer

say "Real text: the King James Bible, its last twentieth held out"
[ ! -e "$dir" ] || [ -f "$dir/.quickstart" ] || die "$dir is not a directory of an earlier quick start: name another one"
rm -rf "$dir"
mkdir -p "$dir/volumes/corpus" "$dir/volumes/checkpoints"
touch "$dir/.quickstart"
bible gen1:1-rev22:21 >"$dir/bible.txt"
unigram=$(python3 - "$dir" <<'PY'
import collections, math, pathlib, sys
directory = pathlib.Path(sys.argv[1])
text = (directory / "bible.txt").read_bytes()
cut = len(text) * 19 // 20
train, held_out = text[:cut], text[cut:]
(directory / "volumes/corpus/train.txt").write_bytes(train)
(directory / "volumes/corpus/held-out.txt").write_bytes(held_out)
counts, n = collections.Counter(held_out), len(held_out)
print(f"{-sum(c / n * math.log(c / n) for c in counts.values()):.2f}")
print(f"{len(train):,} bytes to train on, {n:,} held out", file=sys.stderr)
PY
)
printf 'A model that knows only how often each byte occurs in the held-out text would lose %s nats per byte.\n' "$unigram"

say "The plan"
"$bin/trainyard" plan --job "$job" --product Simulated --count 2,4

say "Run on 2 ranks; resize to $ranks at step $resize_at"
log="$dir/run.log"
"$bin/trainyard" run "$job" --nodes 2 --gpus-per-node 2 --state-dir "$dir" > >(tee "$log") 2>&1 &
run=$!
trap 'kill "$run" 2>/dev/null || true' EXIT
field() { "$bin/trainyard" get quickstart --state-dir "$dir" -o json 2>/dev/null | python3 -c "
import json, sys
value = json.load(sys.stdin)['status']
for key in sys.argv[1].split('.'):
    value = value.get(key, {}) if isinstance(value, dict) else {}
print(value if value != {} else '')" "$1" 2>/dev/null || true; }
while kill -0 "$run" 2>/dev/null; do
  step=$(field progress.step)
  [ -n "$step" ] && [ "$step" -ge "$resize_at" ] && break
  sleep 0.2
done
kill -0 "$run" 2>/dev/null || die "the job ended before step $resize_at; its log is $log"
"$bin/trainyard" resize quickstart --gpus "$ranks" --state-dir "$dir"
status=0
wait "$run" || status=$?
trap - EXIT
[ "$status" = 0 ] || die "the job failed with exit code $status; its log is $log, the ranks' logs are in $dir/pods"

say "Verify the checkpoints"
"$bin/trainyard" checkpoints list "$dir/volumes/checkpoints/quickstart"
"$bin/trainyard" checkpoints verify "$dir/volumes/checkpoints/quickstart"

python3 - "$dir" "$unigram" <<'PY'
import json, pathlib, sys
directory, unigram = pathlib.Path(sys.argv[1]), float(sys.argv[2])
job = json.loads((directory / "jobs/default/quickstart.json").read_text())
status, progress = job["status"], job["status"]["progress"]
checkpoints = sorted((directory / "volumes/checkpoints/quickstart").glob("step-*"))
before, after = progress["initialValidationLoss"], progress["validationLoss"]
print(f"\n{status['phase']}: step {progress['step']} of {progress['steps']}, held-out loss {before:.2f} -> {after:.2f} "
      f"(unigram {unigram:.2f}), resized 2 -> {status['plan']['gpus']} ranks at step {progress['resumedFromStep']}, "
      f"{len(checkpoints)} checkpoints verified")
resized = status["plan"]["gpus"] == 4 and progress["resumedFromStep"] >= 200
if status["phase"] != "Succeeded" or not resized or after > unigram - 0.5 or len(checkpoints) < 4:
    sys.exit("quickstart: the job did not reach what it should: see the line above")
PY
