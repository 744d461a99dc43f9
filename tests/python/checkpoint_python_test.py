"""Opens a checkpoint of ours with the safetensors package and puts the tensors together again.

Usage: checkpoint_python_test.py WRITER, where WRITER DIR writes a checkpoint of step 5 (three ranks) and prints, per tensor,
its name, its shape, and the first element before it is taken modulo 8388593, as JSON.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import safe_open


def read_tensors(directory):
    """All tensors of model/ or optim/: {name: array}, with what the format says about reading in docs/checkpoint-format.md."""
    parts = {}
    for path in sorted(glob.glob(os.path.join(directory, "*.safetensors"))):
        with safe_open(path, framework="numpy") as shard:
            offsets = json.loads(shard.metadata()["DCP_SHARDING_INFO"])
            for name in shard.keys():
                parts.setdefault(name, []).append((offsets[name]["saved_offsets"], shard.get_tensor(name)))
    tensors = {}
    for name, boxes in parts.items():
        shape = [max(o[d] + a.shape[d] for o, a in boxes) for d in range(boxes[0][1].ndim)]
        tensors[name] = np.full(shape, np.nan, boxes[0][1].dtype)
        for offset, array in boxes:
            tensors[name][tuple(slice(o, o + n) for o, n in zip(offset, array.shape))] = array
    return tensors


def main():
    with tempfile.TemporaryDirectory() as root:
        expected = json.loads(subprocess.run([sys.argv[1], root], check=True, capture_output=True, text=True).stdout)
        step = os.path.join(root, "step-00000005")
        found = {**read_tensors(os.path.join(step, "model")), **read_tensors(os.path.join(step, "optim"))}
        manifest = json.load(open(os.path.join(step, "manifest.json")))
        assert manifest["format"] == "trainyard-checkpoint/1", manifest["format"]
        shapes = {t["name"]: t["shape"] for t in manifest["tensors"]}
        assert sorted(found) == sorted(shapes) == sorted(t["name"] for t in expected), (sorted(found), sorted(shapes))
        assert len(expected) >= 12, "a test of nothing"
        for tensor in expected:
            name, shape = tensor["name"], tensor["shape"]
            assert list(found[name].shape) == shape == shapes[name], (name, found[name].shape, shape)
            index = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint64).reshape(shape)
            values = (index * np.uint64(2654435761) + np.uint64(tensor["base"])) % np.uint64(8388593)
            assert found[name].dtype == np.float32
            assert np.array_equal(found[name], values.astype(np.float32)), name
        print(f"{len(expected)} tensors of {manifest['world']} ranks are as they should be")
        # The data of every shard begins on a page, and the ranges of the manifest are those of the file.
        for file in manifest["files"]:
            raw = open(os.path.join(step, file["path"]), "rb").read()
            length = int.from_bytes(raw[:8], "little")
            assert (8 + length) % 4096 == 0 and file["dataBegin"] == 8 + length and file["bytes"] == len(raw)
            header = json.loads(raw[8:8 + length])
            for chunk in file["chunks"]:
                name = manifest["tensors"][chunk["tensor"]]["name"]
                begin, end = header[name]["data_offsets"]
                assert (chunk["begin"], chunk["end"]) == (begin + 8 + length, end + 8 + length), name
        print(f"{len(manifest['files'])} shard files are where the manifest says")


main()
