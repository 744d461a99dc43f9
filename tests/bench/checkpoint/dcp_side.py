"""PyTorch's side of the comparison: torch.distributed.checkpoint on the same state, obeying lines of standard input.

    dcp_side.py LAYERS ROOT
    save STEP      dcp.save, one rank, files synced             -> seconds
    shards STEP    the same as two ranks, not timed             -> "ok"
    load STEP      dcp.load of all of it as one rank            -> seconds
    stall STEP     dcp.async_save: until training may go on     -> seconds; then waits for its end
"""
import os
import sys
import time

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

ROWS, HIDDEN = 4096, 1024


def shapes(layers):
    for layer in range(layers):
        for name, shape in ((f"model.layers.{layer}.weight", (ROWS, HIDDEN)), (f"model.layers.{layer}.norm.weight", (HIDDEN,))):
            yield name, shape
            yield f"state.{name}.exp_avg", shape
            yield f"state.{name}.exp_avg_sq", shape


def writer(path):
    return dcp.FileSystemWriter(path, sync_files=True, single_file_per_rank=True)


def save_shards(rank, port, layers, path):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    state = {name: distribute_tensor(torch.randn(shape), mesh, [Shard(0)]) for name, shape in shapes(layers)}
    dcp.save(state, storage_writer=writer(path))
    dist.destroy_process_group()


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def timed(work):
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def main():
    layers, root = int(sys.argv[1]), sys.argv[2]
    # async_save needs a group, of one rank here.
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    state = {name: torch.randn(shape) for name, shape in shapes(layers)}
    print("ready", sum(t.numel() * 4 for t in state.values()), flush=True)
    for line in sys.stdin:
        command, step = line.split()
        path = os.path.join(root, f"step-{step}")
        if command == "save":
            print(timed(lambda: dcp.save(state, storage_writer=writer(path)))[0], flush=True)
        elif command == "shards":
            torch.multiprocessing.start_processes(save_shards, (free_port(), layers, path), nprocs=2, start_method="spawn")
            print("ok", flush=True)
        elif command == "load":
            print(timed(lambda: dcp.load(state, storage_reader=dcp.FileSystemReader(path)))[0], flush=True)
        elif command == "stall":
            seconds, future = timed(lambda: dcp.async_save(state, storage_writer=writer(path)))
            future.result()
            print(seconds, flush=True)
        else:
            raise SystemExit(f"unknown command: {line}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
