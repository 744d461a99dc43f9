#!/usr/bin/env bash
# A published model, tuned on one machine without a cluster or a GPU: SmolLM2-135M-Instruct (135 million parameters) learns
# to define nouns as a dictionary does, on two CPU ranks. docs/finetune.md tells what happens and shows the output.
#   bash docs/examples/finetune.sh [DIR]   DIR keeps data, checkpoints and models (default: .trainyard/finetune); emptied first
#
#   TRAINYARD_BIN   directory with programs that are built already; without it they are set up and built here
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
dir=$(realpath -m "${1:-.trainyard/finetune}")
bin=${TRAINYARD_BIN:-build/release/bin}
examples=docs/examples/finetune
noun=tourist

say() { printf '\n== %s\n' "$*"; }
die() { printf 'finetune: %s\n' "$*" >&2; exit 1; }

if [ -z "${TRAINYARD_BIN:-}" ]; then
  say "Set-up and build (nothing to do the second time)"
  bash tests/setup.sh
  mkdir -p build
  cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
  cmake --build --preset release --parallel "$(nproc)" \
    --target trainyard trainyard-launch trainyard-trainer trainyard-generate
fi
[ ! -e "$dir" ] || [ -f "$dir/.finetune" ] || die "$dir is not a directory of an earlier run: name another one"
rm -rf "$dir"
mkdir -p "$dir"/volumes/{models,corpus,checkpoints}
touch "$dir/.finetune"
model="$dir/volumes/models/smollm2-135m-instruct"
cp -r "$(bash $examples/model.sh)" "$model"

say "Conversations: nouns of WordNet and what they mean, a twentieth of the meanings held out"
python3 $examples/definitions.py "$dir"
for set in train held-out; do
  "$bin/trainyard" data tokenize --tokenizer "$model" --format chat --sequence-length 128 --input "$dir/$set.jsonl" \
    --output "$dir/volumes/corpus/$set.bin"
done
"$bin/trainyard" data show "$dir/volumes/corpus/train.bin" --tokenizer "$model" --tokens 55

say "The plan"
"$bin/trainyard" plan --job docs/examples/finetune.yaml --product Simulated --count 2

say "Train on 2 ranks"
"$bin/trainyard" run docs/examples/finetune.yaml --nodes 1 --gpus-per-node 2 --state-dir "$dir"

say "What came of it: an adapter in PEFT's layout, and merged into the weights a model like the one it came of"
"$bin/trainyard" checkpoints list "$dir/volumes/checkpoints/finetune"
models="$dir/volumes/models"
"$bin/trainyard" checkpoints merge --base "$model" --adapter "$dir/volumes/checkpoints/finetune" \
  --to "$models/smollm2-135m-dictionary"
ls -sh "$models/dictionary-adapter" "$models/smollm2-135m-dictionary"
for name in instruct dictionary; do
  printf '\n$ trainyard generate --model smollm2-135m-%s --chat --prompt %s\n' $name "'Define the noun \"$noun\".'"
  "$bin/trainyard" generate --model "$dir/volumes/models/smollm2-135m-$name" --chat --prompt "Define the noun \"$noun\"." --tokens 40
done
python3 - "$dir/jobs/default/finetune.json" <<'PY'
import json, sys
status = json.load(open(sys.argv[1]))["status"]
progress = status["progress"]
before, after = progress["initialValidationLoss"], progress["validationLoss"]
print(f"\n{status['phase']}: step {progress['step']} of {progress['steps']}, loss of held-out answers {before:.2f} -> {after:.2f}")
if status["phase"] != "Succeeded" or after > before - 0.8:
    sys.exit("finetune: the loss did not fall by 0.8 as it should: see the line above")
PY
