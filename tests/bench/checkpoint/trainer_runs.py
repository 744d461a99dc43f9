"""The real trainer on this machine: what a save beside training costs it, and how long a resize takes.

Figures come from what the trainer itself reports: its step log, its status, its log.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

TEXT = pathlib.Path("/usr/share/common-licenses")


def corpus(directory):
    directory.mkdir(parents=True, exist_ok=True)
    text = b"".join(p.read_bytes() for p in sorted(TEXT.iterdir()) if p.is_file() and not p.is_symlink())
    (directory / "train.txt").write_bytes(text)


def job(steps, every, layers=6):
    """About 43 million parameters, half a gigabyte of state; one thread of arithmetic, so that a core is left."""
    return {"contract": 1, "job": {"namespace": "default", "name": "bench", "uid": "bench"},
            "model": {"family": "Llama", "layers": layers, "hiddenSize": 768, "attentionHeads": 12, "kvHeads": 12,
                      "ffnSize": 2048, "vocabSize": 256, "tiedEmbeddings": True, "maxPositions": 64, "ropeTheta": 10000.0,
                      "normEpsilon": 1e-5},
            "data": {"format": "Text", "train": [{"volume": "corpus", "path": "train.txt"}]},
            "training": {"device": "CPU", "sequenceLength": 32, "globalBatchSize": 1, "microBatchSize": 1, "steps": steps,
                         "threads": 1, "precision": "FP32", "seed": 1,
                         "optimizer": {"name": "AdamW", "learningRate": 1e-4, "betas": [0.9, 0.95], "epsilon": 1e-8,
                                       "weightDecay": 0.1},
                         "schedule": {"type": "Constant", "warmupSteps": 0, "minLearningRateRatio": 1},
                         "gradientClipNorm": 1.0, "evaluation": {"everySteps": 0, "batches": 0}},
            "parallelism": {"strategy": "DDP"},
            "checkpoint": {"volume": "checkpoints", "path": "bench", "everySteps": every, "keepLast": 1,
                           "resume": "Never", "resumeStep": 0}}


def train(bin_dir, directory, steps, every, enter=None):
    """One process trains; returns (seconds from step to step as its log grew, [stall, bytes, seconds, step] of each save
    beside training). What happens between two steps, such as the beginning of a save, counts for the later one. `enter`
    is called in the process before it begins."""
    run = directory / "run"
    subprocess.run(["rm", "-rf", run, directory / "volumes/checkpoints/bench"], check=True)
    run.mkdir(parents=True)
    (directory / "volumes/checkpoints").mkdir(parents=True, exist_ok=True)
    corpus(directory / "volumes/corpus")
    (run / "job.json").write_text(json.dumps(job(steps, every)))
    env = dict(os.environ, RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
               TRAINYARD_JOB_UID="bench", TRAINYARD_ATTEMPT="1", TRAINYARD_ROUND="0", TRAINYARD_JOB_FILE=str(run / "job.json"),
               TRAINYARD_VOLUME_ROOT=str(directory / "volumes"), TRAINYARD_RUN_DIR=str(run), POD_IP="127.0.0.1")
    with open(run / "log", "w+") as log:
        process = subprocess.Popen([bin_dir / "trainyard-trainer"], env=env, stdout=log, stderr=log, preexec_fn=enter)
        arrived = arrivals(process, run / "steps.jsonl")
        log.seek(0)
        said = log.read()
    if process.returncode != 0:
        raise SystemExit(f"trainyard-trainer: exit code {process.returncode}: {said[-4000:]}")
    seconds = [b - a for a, b in zip([arrived[0]] + arrived, arrived)]
    saves = re.findall(r"checkpoint of step (\d+) written: (\d+) bytes in ([\d.e-]+) s, for which training stood still ([\d.e-]+) s",
                       said)
    return seconds, [(float(stall), int(size), float(whole), int(step)) for step, size, whole, stall in saves if int(step) < steps]


class SlowDisk:
    """A file system of its own, mounted at `place`, to which processes that enter() write so many bytes per second: by the
    kernel, whatever they do. OSError or CalledProcessError where this user or this kernel may not."""

    GROUPS = pathlib.Path("/sys/fs/cgroup")

    def __init__(self, image, place, size, rate):
        self.place, self.group = place, None
        place.mkdir(parents=True, exist_ok=True)
        with open(image, "wb") as file:
            file.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, place], check=True)
        try:
            device = os.stat(place).st_dev
            limit = f"{os.major(device)}:{os.minor(device)} "
            unified = (self.GROUPS / "cgroup.controllers").exists()
            group = self.GROUPS / ("" if unified else "blkio") / f"trainyard-bench-{os.getpid()}"
            group.mkdir()
            self.group = group
            if unified:
                (group / "io.max").write_text(limit + f"wbps={rate}")
            else:
                (group / "blkio.throttle.write_bps_device").write_text(limit + str(rate))
        except BaseException:
            self.close()
            raise

    def enter(self):
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        if self.group is not None:
            self.group.rmdir()
        subprocess.run(["umount", self.place], check=True)


def arrivals(process, path):
    """When each line of the step log came, until the process has ended."""
    arrived = []
    while True:
        ended = process.poll() is not None
        now = time.monotonic()
        lines = path.read_bytes().count(b"\n") if path.exists() else 0
        arrived += [now] * (lines - len(arrived))
        if ended:
            return arrived
        time.sleep(0.002)


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


RESIZE_JOB = """
apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: bench}
spec:
  model: {architecture: {family: Llama, layers: 4, hiddenSize: 256, attentionHeads: 8, kvHeads: 4, ffnSize: 688}}
  data: {format: Text, train: [{volume: corpus, path: train.txt}]}
  training: {sequenceLength: 64, globalBatchSize: 8, steps: 1000000, precision: FP32}
  parallelism: {strategy: FSDP}
  gpus: {count: 2}
  checkpoint: {volume: checkpoints, every: {steps: 1000000}, keepLast: 2}
  volumes:
    - {name: corpus, persistentVolumeClaim: {claimName: corpus}}
    - {name: checkpoints, persistentVolumeClaim: {claimName: checkpoints}}
"""


class LocalRun:
    """`trainyard run` of RESIZE_JOB."""

    def __init__(self, bin_dir, directory):
        self.bin, self.directory = bin_dir, directory
        subprocess.run(["rm", "-rf", directory], check=True)
        (directory / "volumes/checkpoints").mkdir(parents=True)
        corpus(directory / "volumes/corpus")
        (directory / "job.yaml").write_text(RESIZE_JOB)
        self.begun = time.monotonic()
        self.log = open(directory / "run.log", "w")
        self.process = subprocess.Popen([bin_dir / "trainyard", "run", directory / "job.yaml", "--nodes", "2",
                                         "--gpus-per-node", "2", "--state-dir", directory], stdout=self.log, stderr=self.log)

    def logs(self):
        """Step logs of all attempts so far."""
        return {p for p in self.directory.rglob("steps.jsonl") if p.stat().st_size > 0}

    def await_step(self, known):
        """Until an attempt whose step log is not in `known` has done a step."""
        while not (new := self.logs() - known):
            if self.process.poll() is not None:
                raise SystemExit(f"trainyard run ended: {(self.directory / 'run.log').read_text()[-2000:]}")
            time.sleep(0.01)
        return time.monotonic(), known | new

    def resize(self, gpus, known):
        """Seconds from the patch to the first step at the new size."""
        begin = time.monotonic()
        subprocess.run([self.bin / "trainyard", "resize", "bench", "--gpus", str(gpus), "--state-dir", self.directory],
                       check=True, capture_output=True)
        end, known = self.await_step(known)
        return end - begin, known

    def close(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
