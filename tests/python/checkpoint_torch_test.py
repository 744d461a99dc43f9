"""Our checkpoints in the hands of PyTorch and transformers, and theirs in ours.

Usage: checkpoint_torch_test.py SAMPLE TRAINYARD TRAINER, where SAMPLE is the program checkpoint_sample (a checkpoint of
three ranks whose every element is known), TRAINYARD the command line and TRAINER the trainer of one rank.

1. torch.distributed.checkpoint with its Hugging Face reader loads model/ and optim/ of a checkpoint as it lies, on 1, 2
   and 4 ranks, and `export --to dcp` as one directory.
2. transformers loads `export --to huggingface` without a missing or an unexpected tensor: Llama and GPT-2, float32 and
   bfloat16, one file and several. DCP's reader loads it too.
3. `import` takes what transformers and DCP (save_distributed) saved, tied and untied.
4. What our trainer trained has the same validation loss in transformers after an export; what transformers made has in
   our trainer, which starts from the import with resumeFrom and weightsOnly, the loss that transformers says.
5. A model of each family, in each dtype, in one file and in several, as transformers saved it: import and export give
   every file back byte for byte, and our trainer starts from the directory with the loss that transformers says.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import transformers
from safetensors import safe_open
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

SAMPLE, TRAINYARD, TRAINER = sys.argv[1:4]
STEP = "step-00000005"


def trainyard(*arguments):
    done = subprocess.run([TRAINYARD, "checkpoints", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout


def sample(root, *what):
    """Writes a checkpoint; returns {name: the tensor that it must hold}."""
    text = subprocess.run([SAMPLE, str(root), *what], check=True, capture_output=True, text=True).stdout
    tensors = {}
    for t in json.loads(text):
        index = torch.arange(int(torch.tensor(t["shape"]).prod()), dtype=torch.int64).reshape(t["shape"])
        tensors[t["name"]] = ((index * 2654435761 + t["base"]) % 8388593).to(torch.float32)
    assert len(tensors) >= 12, "a test of nothing"
    return tensors


def load_sharded(rank, world, port, jobs):
    """On each rank: loads its rows of every tensor and compares them. jobs: [(directory, {name: tensor}, dtype)]."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    for directory, expected, dtype in jobs:
        state = {n: distribute_tensor(torch.full(t.shape, -1, dtype=dtype), mesh, [Shard(0)]) for n, t in expected.items()}
        dcp.load(state, storage_reader=HuggingFaceStorageReader(str(directory)))
        for name, tensor in expected.items():
            wanted = distribute_tensor(tensor.to(dtype), mesh, [Shard(0)]).to_local()
            assert torch.equal(state[name].to_local(), wanted), (directory, name, rank, world)
    dist.destroy_process_group()


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def on_ranks(work, world, *arguments):
    torch.multiprocessing.start_processes(work, (world, free_port(), *arguments), nprocs=world, start_method="fork")


def dcp_reads_ours(tmp):
    expected = sample(tmp / "job")
    model = {n: t for n, t in expected.items() if not n.startswith("state.")}
    optim = {n: t for n, t in expected.items() if n.startswith("state.")}
    trainyard("export", tmp / "job", tmp / "dcp", "--to", "dcp")
    step = tmp / "job" / STEP
    jobs = [(step / "model", model, torch.float32), (step / "optim", optim, torch.float32),
            (tmp / "dcp", expected, torch.float32)]
    for world in (1, 2, 4):
        on_ranks(load_sharded, world, jobs)
    print(f"DCP: {len(expected)} tensors of 3 ranks on 1, 2 and 4, as saved and exported")


def transformers_reads_ours(tmp, family):
    expected = sample(tmp / "job", family)
    model = {n: t for n, t in expected.items() if not n.startswith("state.")}
    for dtype, size in (("float32", "5GB"), ("bfloat16", "2k")):
        out = tmp / f"hf-{dtype}"
        trainyard("export", tmp / "job" / STEP, out, "--to", "huggingface", "--dtype", dtype, "--max-shard-size", size)
        files = sorted(p.name for p in out.glob("*.safetensors"))
        assert (files == ["model.safetensors"]) == (size == "5GB"), files
        loaded, info = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True, dtype="auto")
        for key, found in info.items():
            assert not found, (family, dtype, key, found)
        state = loaded.state_dict()
        for name, tensor in model.items():
            assert state[name].dtype == getattr(torch, dtype), (name, state[name].dtype)
            assert torch.equal(state[name], tensor.to(state[name].dtype)), (family, dtype, name)
        tied = family == "gpt2"
        assert (loaded.lm_head.weight is loaded.get_input_embeddings().weight) == tied
        assert loaded(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 40)
        on_ranks(load_sharded, 2, [(out, model, getattr(torch, dtype))])
        # And back.
        trainyard("import", out, tmp / f"back-{dtype}")
        if dtype == "float32":
            trainyard("diff", "--weights-only", tmp / "job", tmp / f"back-{dtype}")
    print(f"transformers: {family} loads, and comes back")


def small(family, tied):
    torch.manual_seed(7)
    if family == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(
            num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
            vocab_size=41, max_position_embeddings=32, tie_word_embeddings=tied))
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=2, n_embd=16, n_head=4, vocab_size=41, n_positions=32, tie_word_embeddings=tied))


def weights_of(step):
    """{name: tensor} of the model of one of our checkpoints; a box of any rank at its place."""
    shapes = {t["name"]: t["shape"] for t in json.loads((step / "manifest.json").read_text())["tensors"]}
    tensors = {name: torch.full(shape, float("nan")) for name, shape in shapes.items()}
    for path in sorted((step / "model").glob("*.safetensors")):
        with safe_open(path, framework="pt") as shard:
            offsets = json.loads(shard.metadata()["DCP_SHARDING_INFO"])
            for name in shard.keys():
                part = shard.get_tensor(name)
                tensors[name][tuple(slice(o, o + n) for o, n in zip(offsets[name]["saved_offsets"], part.shape))] = part
    return tensors


def check_imported(root, model):
    trainyard("verify", root)
    found = weights_of(root / "step-00000000")
    names = {id(p): n for n, p in reversed(list(model.named_parameters()))}
    assert sorted(found) == sorted(names.values()), set(found) ^ set(names.values())
    for name, tensor in model.named_parameters():
        assert torch.equal(found[name], tensor.detach().float()), name


def save_distributed(rank, world, port, directory, model):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    state = {n: distribute_tensor(p.detach(), mesh, [Shard(0)]) for n, p in model.named_parameters()}
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(str(directory), save_distributed=True))
    dist.destroy_process_group()


def ours_reads_theirs(tmp):
    for family in ("llama", "gpt2"):
        for tied in (False, True):
            model = small(family, tied)
            at = tmp / f"{family}-{tied}"
            model.save_pretrained(at / "hf", max_shard_size="4KB")
            assert len(list((at / "hf").glob("*.safetensors"))) > 1
            trainyard("import", at / "hf", at / "job")
            check_imported(at / "job", model)
            model.to(torch.bfloat16).save_pretrained(at / "half")
            trainyard("import", at / "half", at / "half-job")
            check_imported(at / "half-job", model)
            on_ranks(save_distributed, 2, at / "dcp", model.float())
            trainyard("import", at / "dcp", at / "dcp-job", "--config", at / "hf" / "config.json")
            check_imported(at / "dcp-job", model)
    print("import: transformers' and DCP's files of both families, tied and untied")


LENGTH, BATCH, BATCHES = 32, 4, 6


def train(tmp, name, family, steps, pretrained=None, **checkpoint):
    """Our trainer on one rank; returns its status. The text is the licences that every Debian machine has."""
    run, volumes = tmp / f"{name}-run", tmp / "volumes"
    run.mkdir()
    model = {"family": family, "layers": 2, "hiddenSize": 32, "attentionHeads": 4, "kvHeads": 4, "ffnSize": 128,
             "vocabSize": 256, "tiedEmbeddings": family == "GPT2", "maxPositions": 64, "normEpsilon": 1e-5}
    if family == "Llama":
        model.update(kvHeads=2, ropeTheta=10000.0)
    if pretrained:
        model = {"pretrained": {"volume": "models", "path": pretrained}}
    file = {"volume": "corpus", "path": "text"}
    (run / "job.json").write_text(json.dumps({
        "contract": 1, "job": {"namespace": "default", "name": name, "uid": name}, "model": model,
        "data": {"format": "Text", "train": [file], "validation": [file]},
        "training": {"device": "CPU", "sequenceLength": LENGTH, "globalBatchSize": 4, "microBatchSize": BATCH,
                     "steps": steps, "precision": "FP32", "seed": 1, "gradientClipNorm": 1.0,
                     "optimizer": {"name": "AdamW", "learningRate": 3e-3, "betas": [0.9, 0.95], "epsilon": 1e-8,
                                   "weightDecay": 0.1},
                     "schedule": {"type": "Constant", "warmupSteps": 0, "minLearningRateRatio": 1},
                     "evaluation": {"everySteps": steps, "batches": BATCHES}},
        "parallelism": {"strategy": "DDP"},
        "checkpoint": {"volume": "checkpoints", "path": name, "everySteps": 0, "keepLast": 1, "resume": "Latest",
                       "resumeStep": 0, **checkpoint}}))
    env = dict(os.environ, RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
               TRAINYARD_JOB_UID=name, TRAINYARD_ATTEMPT="1", TRAINYARD_ROUND="0",
               TRAINYARD_JOB_FILE=str(run / "job.json"), TRAINYARD_VOLUME_ROOT=str(volumes), TRAINYARD_RUN_DIR=str(run),
               POD_IP="127.0.0.1")
    done = subprocess.run([TRAINER], env=env, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return json.loads((run / "status.json").read_text())


def validation_loss(model, text):
    """As our trainer computes it: nats per token over the first sequences, each with the token after its end."""
    tokens = torch.tensor(list(text[:BATCH * BATCHES * LENGTH + 1]))
    rows = torch.stack([tokens[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(BATCH * BATCHES)])
    with torch.no_grad():
        logits = model(rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), rows[:, 1:].flatten()).item()


def same_loss_in_both(tmp):
    licences = pathlib.Path("/usr/share/common-licenses")
    text = b"".join(p.read_bytes() for p in sorted(licences.iterdir()) if p.is_file() and not p.is_symlink())
    (tmp / "volumes/corpus").mkdir(parents=True)
    (tmp / "volumes/checkpoints").mkdir()
    (tmp / "volumes/corpus/text").write_bytes(text)
    for family in ("Llama", "GPT2"):
        status = train(tmp, f"{family}-ours", family, 30)
        trainyard("export", tmp / f"volumes/checkpoints/{family}-ours", tmp / f"{family}-hf", "--to", "huggingface")
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp / f"{family}-hf").eval()
        assert model.config.max_position_embeddings == 64
        loss = validation_loss(model, text)
        assert status["validationLoss"] < status["initialValidationLoss"] - 0.5, status
        assert abs(loss - status["validationLoss"]) < 2e-5 * loss, (family, loss, status["validationLoss"])
        # And the other way: weights that ours has never seen.
        torch.manual_seed(11)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.05 * torch.randn_like(p))
        model.save_pretrained(tmp / f"{family}-theirs")
        trainyard("import", tmp / f"{family}-theirs", tmp / f"volumes/checkpoints/{family}-imported")
        source = {"volume": "checkpoints", "path": f"{family}-imported", "step": 0, "weightsOnly": True}
        status = train(tmp, f"{family}-fork", family, 1, resumeFrom=source)
        loss = validation_loss(model, text)
        assert abs(loss - status["initialValidationLoss"]) < 2e-5 * loss, (family, loss, status)
        print(f"{family}: the same validation loss in transformers and in our trainer, both ways")


def published(family):
    """Small enough to lie in files of 8 KB, of 256 tokens, with what its family may have."""
    torch.manual_seed(13)
    sizes = dict(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
                 vocab_size=256, max_position_embeddings=64)
    longer = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 32}
    make = {
        "Llama": lambda c: c(**sizes, rope_theta=5e5, rope_scaling=longer, tie_word_embeddings=True),
        "Mistral": lambda c: c(**sizes, sliding_window=8),
        "Qwen2": lambda c: c(**sizes, use_sliding_window=True, sliding_window=8, max_window_layers=1),
        "Qwen3": lambda c: c(**sizes, head_dim=16, rope_theta=1e6),
    }
    if family == "GPT2":
        config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=256, n_positions=64)
        return transformers.GPT2LMHeadModel(config).eval()
    config = make[family](getattr(transformers, family + "Config"))
    model = getattr(transformers, family + "ForCausalLM")(config).eval()
    with torch.no_grad():  # biases and norms off their first values
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return model


def comes_back_and_goes_on(tmp):
    licences = pathlib.Path("/usr/share/common-licenses")
    text = b"".join(p.read_bytes() for p in sorted(licences.iterdir()) if p.is_file() and not p.is_symlink())
    for volume in ("corpus", "checkpoints", "models"):
        (tmp / "volumes" / volume).mkdir(parents=True)
    (tmp / "volumes/corpus/text").write_bytes(text)
    for family in ("Llama", "Mistral", "Qwen2", "Qwen3", "GPT2"):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for size in ("5GB", "8KB"):
                at = tmp / f"{family}-{str(dtype)[6:]}-{size}"
                model = published(family).to(dtype)
                model.generation_config.max_new_tokens = 7
                model.save_pretrained(at / "hf", max_shard_size=size)
                (at / "hf/tokenizer.json").write_text('{"a": 1}')
                trainyard("import", at / "hf", at / "job")
                trainyard("export", at / "job", at / "out", "--to", "huggingface")
                was = {p.name: p.read_bytes() for p in (at / "hf").iterdir()}
                found = {p.name: p.read_bytes() for p in (at / "out").iterdir()}
                assert sorted(was) == sorted(found), (was.keys(), found.keys())
                assert all(was[n] == found[n] for n in was), (at, [n for n in was if was[n] != found[n]])
        model = published(family)
        model.save_pretrained(tmp / "volumes/models" / family, max_shard_size="8KB")
        status = train(tmp, f"{family}-started", family, 1, pretrained=family)
        loss = validation_loss(model, text)
        assert abs(loss - status["initialValidationLoss"]) < 2e-5 * loss, (family, loss, status)
        print(f"{family}: byte for byte the same after import and export; our trainer starts with transformers' loss {loss:.5f}")


def main():
    for part in (comes_back_and_goes_on, same_loss_in_both, dcp_reads_ours, lambda t: transformers_reads_ours(t, "llama"),
                 lambda t: transformers_reads_ours(t, "gpt2"), ours_reads_theirs):
        with tempfile.TemporaryDirectory() as directory:
            part(pathlib.Path(directory))


main()
