"""PyTorch's FSDP2 on one GPU for the comparison: the same Llama, tokens per step, precision and optimizer as gpu_bench.
One JSON line on standard output.

  torch_speed.py SETTING
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench" / "engine"))
from llama import Llama  # noqa: E402


def main():
    setting = json.loads(sys.argv[1])
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("nccl", rank=0, world_size=1)
    torch.cuda.set_device(0)
    torch.manual_seed(20261130)
    with torch.device("cuda"):
        model = Llama(setting["model"])
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    params = list(model.parameters())
    groups = [{"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in params if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    batch, length, steps = setting["batch"], setting["length"], setting["steps"]
    tokens = torch.randint(0, setting["model"]["vocab"], (batch, length + 1), device="cuda")

    def seconds(count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            loss = model(tokens)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(params, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    seconds(3)
    torch.cuda.reset_peak_memory_stats()
    rates = [batch * length * steps / seconds(steps) for _ in range(5)]
    print(json.dumps({"tokensPerSecond": rates, "peakBytes": torch.cuda.max_memory_allocated()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
