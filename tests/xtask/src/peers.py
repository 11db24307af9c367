"""A model, its dimensions, our command  =>  the median milliseconds of ONNX Runtime, OpenVINO and our command, in turns

usage: peers.py MODEL.onnx THREADS ROUNDS NAME=N[,NAME=N…] COMMAND…

In COMMAND, `{inputs}` becomes `--input NAME=FILE.npy …` with the tensors that the peers get; it prints JSON with
"median_ms". Dimensions that are not named are 1; the peers get static shapes. With mean_length=N among the dimensions, masks
leave out the ends of sequences, whose lengths are so long on average.
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
command = sys.argv[5:]
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
core = openvino.Core()
for precision in ("f32", "bf16"):
    net = core.read_model(model)
    net.reshape({port.get_any_name(): list(inputs[port.get_any_name()].shape) for port in net.inputs})
    hints = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(net, "CPU", hints).create_infer_request()
    calls["openvino_" + precision] = lambda request=request: request.infer(inputs)

times = {name: [] for name in [*calls, "ours"]}
with tempfile.TemporaryDirectory() as folder:
    given = []
    for i, (name, value) in enumerate(inputs.items()):
        path = os.path.join(folder, f"{i}.npy")
        np.save(path, value)
        given += ["--input", f"{name}={path}"]
    at = command.index("{inputs}") if "{inputs}" in command else None
    ours = command if at is None else command[:at] + given + command[at + 1 :]
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
        printed = subprocess.run(ours, check=True, capture_output=True, text=True).stdout
        times["ours"].append(json.loads(printed)["median_ms"])

print(json.dumps({name: statistics.median(values) for name, values in times.items()}))
