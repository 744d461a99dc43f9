"""Figures of one GPU, printed as a table and with --json written in the form of docs/benchmarks. run.sh is the way in."""
import argparse
import datetime
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Dense BF16 peaks of the makers' data sheets, in FLOP/s.
PEAK = {"H200": 989e12, "H100 80GB HBM3": 989e12, "H100 PCIe": 756e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12,
        "B200": 2250e12}
# TinyLlama's shape.
LLAMA = {"layers": 22, "hidden": 2048, "heads": 32, "kvHeads": 4, "ffn": 5632, "vocab": 32000}
SETTING = {"model": LLAMA, "batch": 4, "length": 2048, "steps": 10}


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"gpu: {command[0]} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def row(name, values, unit, better, **more):
    spread = statistics.pstdev(values) if len(values) > 1 else 0
    return dict(name=name, value=statistics.median(values), spread=spread, unit=unit, better=better, **more)


def memory(build):
    rows = []
    for size in run([f"{build}/bin/gpu_bench", "memory"]):
        ratio = size["plannedBytes"] / size["peakBytes"]
        rows.append(row(f"memory_planned_{size['name']}", [size["plannedBytes"]], "bytes", "closer",
                        baseline={"name": "measured", "value": size["peakBytes"]}, ratio=ratio))
    return rows


def speed(build, gpu):
    ours = run([f"{build}/bin/gpu_bench", "speed", json.dumps(SETTING)])[0]
    theirs = run([sys.executable, str(HERE / "torch_speed.py"), json.dumps(SETTING)])[0]
    base = statistics.median(theirs["tokensPerSecond"])
    rate = statistics.median(ours["tokensPerSecond"])
    rows = [row("tokens_1.1B_1r_bf16", ours["tokensPerSecond"], "tokens/s", "higher",
                baseline={"name": "PyTorch FSDP2", "value": base}, ratio=rate / base, target=1.0, target_of="ratio"),
            row("peak_bytes_1.1B_1r_bf16", [ours["peakBytes"]], "bytes", "lower",
                baseline={"name": "PyTorch FSDP2", "value": theirs["peakBytes"]},
                ratio=ours["peakBytes"] / theirs["peakBytes"], target=1.0, target_of="ratio")]
    peak = next((flops for part, flops in PEAK.items() if part in gpu), None)
    if peak:
        share = ours["flopsPerToken"] / peak
        rows.append(row("mfu_1.1B_1r_bf16", [r * share for r in ours["tokensPerSecond"]], "1", "higher",
                        baseline={"name": "PyTorch FSDP2", "value": base * share}, ratio=rate / base))
    return rows


def checkpoint(build):
    """Seconds that training stands still for a checkpoint of 125M parameters, 12 bytes of each."""
    with tempfile.TemporaryDirectory() as scratch:
        volumes, out = pathlib.Path(scratch, "volumes"), pathlib.Path(scratch, "run")
        for directory in (volumes / "data", volumes / "checkpoints", out):
            directory.mkdir(parents=True)
        (volumes / "data/train.txt").write_bytes(os.urandom(1 << 20))
        job = {"contract": 1, "job": {"namespace": "default", "name": "gpu", "uid": "gpu"},
               "model": {"family": "Llama", "layers": 12, "hiddenSize": 768, "attentionHeads": 12, "kvHeads": 12,
                         "ffnSize": 2048, "vocabSize": 32000, "tiedEmbeddings": False, "maxPositions": 1024},
               "data": {"format": "Text", "train": [{"volume": "data", "path": "train.txt"}]},
               "training": {"device": "CUDA", "sequenceLength": 1024, "globalBatchSize": 4, "microBatchSize": 4,
                            "steps": 12, "precision": "BF16",
                            "optimizer": {"name": "AdamW", "learningRate": 1e-4, "betas": [0.9, 0.95], "epsilon": 1e-8,
                                          "weightDecay": 0.1},
                            "schedule": {"type": "Constant", "warmupSteps": 0, "minLearningRateRatio": 0.1},
                            "gradientClipNorm": 1, "seed": 1},
               "parallelism": {"strategy": "FSDP"},
               "checkpoint": {"volume": "checkpoints", "path": "gpu", "everySteps": 2, "keepLast": 1, "resume": "Never"}}
        pathlib.Path(scratch, "job.json").write_text(json.dumps(job))
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TRAINYARD_JOB_UID="gpu", TRAINYARD_ATTEMPT="1",
                   TRAINYARD_JOB_FILE=f"{scratch}/job.json", TRAINYARD_VOLUME_ROOT=str(volumes), TRAINYARD_RUN_DIR=str(out),
                   TRAINYARD_STATUS_PORT="0", TRAINYARD_TERMINATION_LOG=f"{scratch}/end")
        subprocess.run([f"{build}/bin/trainyard-launch"], env=env, check=True)
        steps = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    stalls = [s["checkpointSeconds"] for s in steps if s.get("checkpointSeconds", 0) > 0]
    return [row("checkpoint_stall_125M", stalls, "s", "lower")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--json")
    options = parser.parse_args()
    build = str(pathlib.Path(options.build).resolve())
    rows = memory(build) + speed(build, options.gpu) + checkpoint(build)
    for r in rows:
        against = f"  {r['ratio']:.3f} of {r['baseline']['name']} {r['baseline']['value']:.6g}" if "ratio" in r else ""
        print(f"{r['name']:28} {r['value']:>14.6g} {r['unit']:9}{against}")
    if options.json:
        commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        document = {"machine": f"{options.gpu}, {os.cpu_count()} cores", "commit": commit.stdout.strip() or "unknown",
                    "date": datetime.date.today().isoformat(), "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
