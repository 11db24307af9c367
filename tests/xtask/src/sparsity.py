"""Pruned products  =>  for each: times of the dense and of the sparse kernel, and which of both the compiler chooses

usage: sparsity.py PROGRAM FOLDER ROUNDS

A grid of densities, ways to prune and sizes. Each product is compiled with all zeros multiplied, with zeros left out wherever a
format stores the weights, and as the compiler chooses; the first two are called in turns on two threads, which the description
of the device has. Prints a line for each point, and one for all together. A point where both are within 3 % counts for either
choice.
"""

import json
import os
import statistics
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Columns along the sum, rows of weights, and tokens.
SHAPES = [(256, 256, 32), (384, 384, 128), (768, 768, 16), (768, 768, 128), (768, 3072, 128), (3072, 768, 128)]
DENSITIES = [(1, 2), (2, 5), (1, 3), (1, 4), (1, 5), (1, 8), (1, 10), (1, 16)]
PRUNED = {
    "f32, anywhere": (lambda n, m: f"global:{1 - n / m:.4f}", []),
    "f32, n:m": (lambda n, m: f"{n}:{m}", []),
    "f32, n:m:16": (lambda n, m: f"{n}:{m}:16", []),
    "f32, blocks of 1x4": (lambda n, m: f"block:{1 - n / m:.4f},1x4", []),
    "f32, blocks of 16x1": (lambda n, m: f"block:{1 - n / m:.4f},16x1", []),
    "int8, blocks of 1x4": (lambda n, m: f"block:{1 - n / m:.4f},1x4", ["--quantize", "int8"]),
}
TIE = 0.03


def save(path, k, n, tokens):
    values = np.random.default_rng(k * 31 + n).standard_normal((k, n)).astype(np.float32) / k**0.5
    dims = [("x", [tokens, k]), ("y", [tokens, n])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in dims)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [x], [y], [numpy_helper.from_array(values, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)


def compiled(program, model, artifact, options):
    """Whether zeros are left out of the product."""
    command = [program, "compile", model, "-o", artifact, "--no-selftest", "--list-rewrites", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return "skip-zeros: " in done.stdout + done.stderr


def milliseconds(program, artifact):
    command = [program, "bench", artifact, "--threads", "2", "--min-time", "0.05", "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["median_ms"]


def main():
    program, folder, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.makedirs(folder, exist_ok=True)
    model, dense, sparse, chosen = (os.path.join(folder, name) for name in ["m.onnx", "dense.sdx", "sparse.sdx", "chosen.sdx"])
    right = all_points = 0
    lost = 1.0
    print("| weights | tokens | pruned | density | sparse / dense | chosen |\n|---|--:|---|--:|--:|---|")
    for k, n, tokens in SHAPES:
        save(model, k, n, tokens)
        for name, (rule, options) in PRUNED.items():
            for kept, of in DENSITIES:
                options_of = lambda sparsity: ["--sparsify", rule(kept, of), "--sparsity", sparsity, *options]
                compiled(program, model, dense, options_of("off"))
                there = compiled(program, model, sparse, options_of("always"))
                is_sparse = compiled(program, model, chosen, options_of("auto"))
                ratio = 1.0
                if there:
                    turns = [(milliseconds(program, sparse), milliseconds(program, dense)) for _ in range(rounds)]
                    ratio = statistics.median(s / d for s, d in turns)
                is_right = abs(ratio - 1) <= TIE or is_sparse == (ratio < 1)
                right, all_points = right + is_right, all_points + 1
                lost *= 1 if is_right else (ratio if is_sparse else 1 / ratio)
                told = ("sparse" if is_sparse else "dense") + ("" if is_right else ", **slower**")
                ratio = f"{ratio:.2f}" if there else "-"
                print(f"| {n} x {k} | {tokens} | {name} | {kept}/{of} | {ratio} | {told} |", flush=True)
    print(f"\nThe faster one is chosen in {right} of {all_points} ({100 * right / all_points:.1f} %), wrong choices lose {100 * (lost ** (1 / max(all_points - right, 1)) - 1):.0f} % each.")


main()
