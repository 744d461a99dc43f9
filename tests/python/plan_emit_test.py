"""Gives the files of `trainyard plan --emit` to the programs they are for.

Usage: plan_emit_test.py PLAN_PROGRAM DEEPSPEED_SOURCES LIBTORCH, where PLAN_PROGRAM takes the arguments of `trainyard plan`.

The readers are the tools' own: accelerate's load_config_from_file and its launch parser, DeepSpeed's DeepSpeedConfig (with
its check that the batch sizes agree with the number of ranks) and torchrun's argument parser. PyTorch itself is not needed
to read a configuration, so a stand-in that answers everything takes its place.
"""
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
import types
from unittest.mock import MagicMock

PLAN, DEEPSPEED, LIBTORCH = sys.argv[1:4]

# Files of DeepSpeed that read configurations; the rest of the package, which wants PyTorch, is stood in for.
READERS = {"deepspeed.runtime." + name for name in (
    "config", "config_utils", "constants", "precision_config", "zero.config", "zero.leaf_module_config",
    "zero.offload_config",
    "zenflow.zenflow_config")}


class StandIn(types.ModuleType):
    __path__ = []
    __version__ = "2.11.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name in READERS:
            return importlib.util.spec_from_file_location(name, os.path.join(DEEPSPEED, *name.split(".")) + ".py")
        if name.split(".")[0] in ("torch", "deepspeed", "psutil", "huggingface_hub", "tqdm", "safetensors"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def emit(tool, arguments):
    return subprocess.run([PLAN, *arguments.split(), "--emit", tool], check=True, capture_output=True, text=True).stdout


def chosen(arguments):
    plan = json.loads(subprocess.run([PLAN, *arguments.split(), "-o", "json"], check=True, capture_output=True,
                                     text=True).stdout)
    return plan, plan["options"][plan["chosen"]]


def written(text, suffix):
    with tempfile.NamedTemporaryFile("w", suffix=suffix, delete=False) as file:
        file.write(text)
    return file.name


def check_accelerate(arguments):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser
    plan, option = chosen(arguments)
    path = written(emit("accelerate", arguments), ".yaml")
    config = load_config_from_file(path)
    assert config.num_processes == option["gpus"], config
    assert config.num_machines == option["gpus"] // option["perNode"], config
    kind = config.distributed_type.value
    if option["strategy"] == "FSDP" and option["offload"] != "NVMe" and option["gpus"] > 1:
        assert kind == "FSDP", kind
        assert config.fsdp_config["fsdp_activation_checkpointing"] == (option["recompute"] != "None")
        assert config.fsdp_config["fsdp_offload_params"] == (option["offload"] == "CPU")
    elif option["gpus"] > 1 and option["strategy"] == "DDP" and option["offload"] == "None":
        assert kind == "MULTI_GPU", kind
    elif option["gpus"] == 1 and option["offload"] == "None":
        assert kind == "NO", kind
    else:
        assert kind == "DEEPSPEED", kind
        assert config.deepspeed_config["gradient_accumulation_steps"] == option["accumulation"]
    assert config.mixed_precision == ("bf16" if plan["request"]["precision"] == "BF16" else "no"), config.mixed_precision
    # Every key below fsdp_config and deepspeed_config is a flag of `accelerate launch`.
    flags = {action.dest for action in launch_command_parser()._actions}
    for section in (config.fsdp_config, config.deepspeed_config, config.parallelism_config):
        unknown = set(section) - flags
        assert not unknown, f"accelerate launch does not know {unknown}"
    os.unlink(path)
    return kind


def check_deepspeed(arguments):
    _, option = chosen(arguments)
    import deepspeed.comm as comm
    comm.get_world_size = lambda *_, **__: option["gpus"]
    sys.modules["deepspeed"].comm = comm
    from deepspeed.runtime.config import DeepSpeedConfig
    text = emit("deepspeed", arguments)
    path = written(text, ".json")
    config = DeepSpeedConfig(path)  # raises when micro batch x accumulation x ranks is not the batch
    given = json.loads(text)
    assert config.train_batch_size == option["microBatch"] * option["accumulation"] * option["gpus"]
    assert config.train_micro_batch_size_per_gpu == option["microBatch"]
    assert config.gradient_accumulation_steps == option["accumulation"]
    stage = int(config.zero_optimization_stage)
    assert stage == given["zero_optimization"]["stage"], stage
    offload = config.zero_config.offload_optimizer
    assert (offload is not None) == (option["offload"] != "None"), offload
    if offload is not None:
        assert str(getattr(offload.device, "value", offload.device)) == option["offload"].lower(), offload
        assert stage >= 2, stage
    os.unlink(path)
    return stage


def check_torchrun(arguments):
    def load(name):
        spec = importlib.util.spec_from_file_location(name, os.path.join(LIBTORCH, *name.split(".")) + ".py")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    load("torch.distributed.argparse_util")
    parser = load("torch.distributed.run").get_args_parser()
    _, option = chosen(arguments)
    script = emit("torchrun", arguments)
    path = written(script, ".sh")
    # The shell reads the script; a torchrun of ours on its PATH prints the arguments that it would have got.
    with tempfile.TemporaryDirectory() as tools:
        fake = os.path.join(tools, "torchrun")
        with open(fake, "w") as file:
            file.write('#!/bin/sh\nfor a in "$@"; do printf "%s\\n" "$a"; done\n')
        os.chmod(fake, 0o755)
        run = subprocess.run(["sh", path, "--lr", "1"], check=True, capture_output=True, text=True, env={
            "PATH": tools + ":" + os.environ["PATH"], "NODE_RANK": "1", "MASTER_ADDR": "node-0"})
    args = parser.parse_args(run.stdout.splitlines())
    assert int(args.nnodes) * int(args.nproc_per_node) == option["gpus"], args
    assert args.training_script == "train.py" and args.training_script_args == ["--lr", "1"], args
    os.unlink(path)
    return shlex.join(run.stdout.splitlines())


CASES = [
    "--model 7B --product H100-SXM --count 4",                        # ZeRO2
    "--model 7B --product H100-SXM --count 2",                        # FSDP, recomputed
    "--model 34B --product H100-SXM",                                 # two nodes
    "--model 1B --product A100-80GB-SXM --count 2 --precision FP32",  # replicas
    "--model 1B --product A100-80GB-SXM --count 1",                   # one GPU
    "--model 7B --product RTX-4090 --offload CPU",
    "--model 7B --product RTX-4090 --offload NVMe --count 8",
]


def main():
    sys.meta_path.insert(0, Finder())
    sys.path.append(LIBTORCH)  # accelerate asks for the version of the torch package
    for arguments in CASES:
        print(arguments)
        print("  accelerate:", check_accelerate(arguments))
        print("  deepspeed: ZeRO stage", check_deepspeed(arguments))
        if os.path.exists(os.path.join(LIBTORCH, "torch", "distributed", "run.py")):
            print("  torchrun:", check_torchrun(arguments))
        else:
            print(f"  SKIPPED torchrun: no PyTorch package in {LIBTORCH}: run tests/setup.sh")
    print("all files read")


main()
