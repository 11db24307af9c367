"""A model, its dimensions, our command  =>  the median milliseconds of ONNX Runtime, OpenVINO and our command, in turns

usage: peers.py MODEL.onnx THREADS ROUNDS NAME=N[,NAME=N…] F32.sdx BF16.sdx PROGRAM bench ARGUMENT…

The program is called as `PROGRAM bench ARTIFACT ARGUMENT…` with each artifact in turn and prints JSON with "median_ms";
`{inputs}` becomes `--input NAME=FILE.npy …` with the tensors that the peers get. Dimensions that are not named are 1; the
peers get static shapes. "ours_of_peak" is the median share of the multiply-adds that the machine could do in the time of our
call, as `--per-kernel` measures them in the same run. The errors of bf16 are Euclidean lengths of differences from ONNX Runtime's outputs over that of
these, of the worst output. With mean_length=N among the dimensions, masks leave out the ends of sequences,
whose lengths are so long on average; rows that are left out count in no error.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime
import openvino

CALLS = 5
SECONDS = 0.3

model, threads, rounds, dims = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
artifacts = {"ours": sys.argv[5], "ours_bf16": sys.argv[6]}
program, subcommand, *arguments = sys.argv[7:]
sizes = {name: int(n) for name, n in (d.split("=") for d in dims.split(",") if d)}

mean_length = sizes.pop("mean_length", None)

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
random = np.random.default_rng(1)


def tensor(port):
    shape = [d if isinstance(d, int) and d > 0 else sizes.get(d, 1) for d in port.shape]
    if "int" not in port.type:
        return random.standard_normal(shape).astype(np.float32)
    kind = np.int64 if "64" in port.type else np.int32
    if "mask" in port.name and mean_length is not None:
        spread = mean_length * 3 // 4
        lengths = np.linspace(mean_length - spread, mean_length + spread, shape[0]).round()
        return (np.arange(shape[1]) < lengths[:, None]).astype(kind)
    if "mask" in port.name:
        return np.ones(shape, kind)
    if "type" in port.name:
        return np.zeros(shape, kind)
    if "position" in port.name:
        return np.broadcast_to(np.arange(shape[-1], dtype=kind), shape).copy()
    return random.integers(1, 200, shape).astype(kind)


inputs = {port.name: tensor(port) for port in session.get_inputs()}
calls = {"onnxruntime": lambda: session.run(None, inputs)}
names = [port.name for port in session.get_outputs()]
wanted = dict(zip(names, session.run(None, inputs)))


def error(outputs):
    worst = 0.0
    for name, want in wanted.items():
        if want.dtype.kind == "f" and want.size:
            want, got = want.astype(np.float64), outputs[name]
            if mean_length is not None:
                kept = next(value for name, value in inputs.items() if "mask" in name) != 0
                want, got = want[kept], got[kept]
            worst = max(worst, np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30))
    return float(worst)


core = openvino.Core()
for precision in ("f32", "bf16"):
    net = core.read_model(model)
    net.reshape({port.get_any_name(): list(inputs[port.get_any_name()].shape) for port in net.inputs})
    hints = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(net, "CPU", hints).create_infer_request()
    calls["openvino_" + precision] = lambda request=request: request.infer(inputs)
    request.infer(inputs)
errors = {"openvino_bf16": error({name: request.get_output_tensor(i).data for i, name in enumerate(names)})}

times = {name: [] for name in [*calls, *artifacts]}
shares = []
with tempfile.TemporaryDirectory() as folder:
    given = []
    for i, (name, value) in enumerate(inputs.items()):
        path = os.path.join(folder, f"{i}.npy")
        np.save(path, value)
        given += ["--input", f"{name}={path}"]
    at = arguments.index("{inputs}") if "{inputs}" in arguments else None
    arguments = arguments if at is None else arguments[:at] + given + arguments[at + 1 :]
    out = os.path.join(folder, "out")
    run = [program, "run", artifacts["ours_bf16"], *given, "--output-dir", out]
    subprocess.run(run, check=True, capture_output=True)
    files = {os.path.splitext(file)[0]: os.path.join(out, file) for file in os.listdir(out)}
    if all(name in files for name in names):
        errors["ours_bf16"] = error({name: np.load(files[name]) for name in names})
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            # The first calls of a turn find another's data in the caches.
            n = 0
            while n < CALLS or time.perf_counter() - start < SECONDS:
                begin = time.perf_counter()
                call()
                times[name].append((time.perf_counter() - begin) * 1e3)
                n += 1
        for name, artifact in artifacts.items():
            ours = [program, subcommand, artifact, *arguments, "--per-kernel"]
            printed = json.loads(subprocess.run(ours, check=True, capture_output=True, text=True).stdout)
            times[name].append(printed["median_ms"])
            if name == "ours":
                kernels = printed["kernels"]
                done = kernels["product_flops"] / printed["median_ms"] / 1e6
                shares.append(done / kernels["peak_gflops"])

medians = {name: statistics.median(values) for name, values in times.items()}
medians["ours_of_peak"] = statistics.median(shares)
print(json.dumps(medians | {name + "_error": value for name, value in errors.items()}))
