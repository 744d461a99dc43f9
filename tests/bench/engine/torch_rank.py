"""One rank of PyTorch for the comparison: DDP at stage 0, FSDP2 at stages 2 and 3, a plain module where DDP would have one
rank. bench.py starts and drives it; the commands are those of engine_rank.cpp.

  torch_rank.py SETTING WEIGHTS COUNTER   WEIGHTS: the file that engine_rank --export wrote; COUNTER: the library of
                                          count_tensors.cpp
"""
import contextlib
import ctypes
import datetime
import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from llama import Llama


def make_model(s):
    """Sharded or replicated, with the memory of its parameters allocated and nothing in it."""
    with torch.device("meta"):
        model = Llama(s["model"])
    layers = model.model.layers
    if s["checkpointing"]:
        for i in range(len(layers)):
            layers[i] = checkpoint_wrapper(layers[i])  # non-reentrant
    if s["stage"] >= 2:
        bf16 = s["precision"] == "bf16"
        mp = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 else MixedPrecisionPolicy()
        for layer in layers:
            fully_shard(layer, mp_policy=mp, reshard_after_forward=s["stage"] == 3)
        fully_shard(model, mp_policy=mp, reshard_after_forward=False)
    return model.to_empty(device="cpu")


def load(model, file):
    """Fills each parameter, or this rank's rows of it, without ever holding the whole model."""
    with safe_open(file, "pt") as f, torch.no_grad():
        for name, p in model.named_parameters():
            rows = f.get_slice(name.replace("_checkpoint_wrapped_module.", ""))
            if isinstance(p, DTensor):
                local, total, world, rank = p.to_local(), p.shape[0], dist.get_world_size(), dist.get_rank()
                each = -(-total // world)
                local.copy_(rows[min(total, rank * each) : min(total, (rank + 1) * each)])
            else:
                p.copy_(rows[:])


class Side:
    def __init__(self, s, weights, counter):
        self.s, self.counter, self.step = s, counter, 0
        self.model = make_model(s)
        load(self.model, weights)
        with safe_open(weights, "pt") as f:
            self.batches = [f.get_slice("tokens")[b, s["rank"]] for b in range(4)]
        params = list(self.model.parameters())
        groups = [{"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=s["learningRate"], betas=(0.9, 0.95), eps=1e-8, fused=True)
        self.params = params
        if s["stage"] == 0 and s["ranks"] > 1:
            self.model = DistributedDataParallel(self.model, gradient_as_bucket_view=True, static_graph=True)

    def one_step(self):
        autocast = self.s["precision"] == "bf16" and self.s["stage"] == 0  # FSDP2 casts by itself
        with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
            loss = self.model(self.batches[self.step % 4])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.item()

    def steps(self, count):
        dist.barrier()
        start = time.perf_counter()
        losses = [self.one_step() for _ in range(count)]
        dist.barrier()
        return {"seconds": time.perf_counter() - start, "losses": losses}

    def reset(self):
        self.counter.trainyard_count_reset()
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        return {}

    def memory(self):
        """Ends the counting of tensors: what follows is for timing."""
        status = pathlib.Path("/proc/self/status").read_text()
        resident = int(status.split("VmHWM:")[1].split()[0]) * 1024
        peak = self.counter.trainyard_count_peak()
        self.counter.trainyard_count_stop()
        return {"tensorBytes": peak, "residentBytes": resident}


def main():
    s = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    counter = ctypes.CDLL(sys.argv[3])
    counter.trainyard_count_peak.restype = ctypes.c_int64
    counter.trainyard_count_start()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{s['port']}", rank=s["rank"], world_size=s["ranks"],
                            timeout=datetime.timedelta(minutes=2))
    side = Side(s, sys.argv[2], counter)
    print("{}", flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        answer = {"steps": side.steps, "reset": side.reset, "memory": side.memory}[command](*map(int, arguments))
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
