"""A model, a public tool  =>  the file that the tool writes of it, compiled, compared with ONNX Runtime, timed beside peers

usage: sweep.py source MODEL_FOLDER FOLDER
       sweep.py variants MODEL_FOLDER
       sweep.py make MODEL_FOLDER VARIANT FOLDER
       sweep.py judge FOLDER MODEL_FOLDER PROGRAM THREADS ROUNDS

`source` copies a model and its data sets, weights and all, into one file, as tools want it. `variants` prints the names of the variants that the model can have, one a line. `make` writes FOLDER/model.onnx. `judge`
prints one JSON object; ROUNDS = 0 measures no times. Each is a process of its own, because tools end processes and keep
memory. A tool that fails, or writes what ONNX Runtime does not load, has written no file: `make` says so and exits with 3.
"""

import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

# The newest release of ONNX is newer than the one that ONNX Runtime was made for.
os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper

# A file above this is written with its tensors beside it.
EXTERNAL_BYTES = 1_000_000_000
# Tools that hold several copies of the weights, or write one more, are left out above this.
LARGE_BYTES = 300_000_000
CALLS = 3
SECONDS = 0.3
# Cosine below which a result is asked whether the peer's is determined.
MOVED_BELOW = 0.99
# Bytes that one processor passes to another, and the smallest part of the best rate so far that counts as usual.
PASSED_BYTES = 1 << 20
USUAL = 0.6
# Seconds to wait for the usual rate, and between two looks.
WAIT_MAX = 60
LOOK_EVERY = 2


def weights_bytes(folder):
    return sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder) if os.path.isfile(os.path.join(folder, f)))


def data_set(folder, k=0, kind="input"):
    """The tensors of a data set in the order of the inputs (or outputs); `None` where it is absent."""
    path, beginning = os.path.join(folder, f"test_data_set_{k}"), kind + "_"
    files = [f for f in os.listdir(path) if f.startswith(beginning)] if os.path.isdir(path) else []
    files.sort(key=lambda f: int(f[len(beginning) : -3]))
    tensors = []
    for file in files:
        tensor = TensorProto()
        with open(os.path.join(path, file), "rb") as data:
            tensor.ParseFromString(data.read())
        tensors.append(numpy_helper.to_array(tensor))
    return tensors or None


def save(model, folder):
    path = os.path.join(folder, "model.onnx")
    large = model.ByteSize() > EXTERNAL_BYTES
    onnx.save_model(model, path, save_as_external_data=large, location="weights.bin", size_threshold=1024)


def load(folder):
    return onnx.load(os.path.join(folder, "model.onnx"))


def source(folder, to):
    """Tensors beside the model are read here: ONNX takes no files that are hard links."""
    model = onnx.load(os.path.join(folder, "model.onnx"), load_external_data=False)
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            where = {entry.key: entry.value for entry in tensor.external_data}
            with open(os.path.join(folder, where["location"]), "rb") as data:
                data.seek(int(where.get("offset", 0)))
                tensor.raw_data = data.read(int(where["length"]))
            del tensor.external_data[:]
            tensor.data_location = TensorProto.DEFAULT
    os.makedirs(to, exist_ok=True)
    save(model, to)
    for name in os.listdir(folder):
        if name.startswith("test_data_set_"):
            shutil.copytree(os.path.join(folder, name), os.path.join(to, name), dirs_exist_ok=True)


def graph_alone(folder):
    return onnx.load(os.path.join(folder, "model.onnx"), load_external_data=False).graph


class Calibration:
    """The data sets of the model, as ONNX Runtime's quantiser reads them."""

    def __init__(self, folder, path):
        names = [i.name for i in onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).get_inputs()]
        sets = [data_set(folder, k) for k in range(4)]
        self.left = [dict(zip(names, tensors)) for tensors in sets if tensors]

    def get_next(self):
        return self.left.pop(0) if self.left else None

    def set_range(self, start_index, end_index):
        pass

    def __len__(self):
        return len(self.left)


def offline(level):
    def make(folder, to):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = os.path.join(to, "model.onnx")
        if weights_bytes(folder) > EXTERNAL_BYTES:
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
        onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), options, providers=["CPUExecutionProvider"])

    return make


def transformers(folder, to):
    from onnxruntime.transformers.optimizer import optimize_model

    graph = graph_alone(folder)
    if any(node.op_type == "Conv" for node in graph.node):
        kind = "vit"
    elif any("past" in i.name for i in graph.input):
        kind = "gpt2"
    else:
        kind = "bert"
    optimised = optimize_model(os.path.join(folder, "model.onnx"), model_type=kind, num_heads=0, hidden_size=0, opt_level=0)
    optimised.save_model_to_file(os.path.join(to, "model.onnx"), use_external_data_format=weights_bytes(folder) > EXTERNAL_BYTES)


def dynamic(per_channel, weights):
    def make(folder, to):
        from onnxruntime.quantization import QuantType, quantize_dynamic

        large = weights_bytes(folder) > 4 * EXTERNAL_BYTES
        source, target = os.path.join(folder, "model.onnx"), os.path.join(to, "model.onnx")
        kind = getattr(QuantType, weights)
        quantize_dynamic(source, target, per_channel=per_channel, weight_type=kind, use_external_data_format=large)

    return make


def static(form, per_channel, activations):
    def make(folder, to):
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

        source, target = os.path.join(folder, "model.onnx"), os.path.join(to, "model.onnx")
        quantize_static(
            source,
            target,
            Calibration(folder, source),
            quant_format=getattr(QuantFormat, form),
            per_channel=per_channel,
            activation_type=getattr(QuantType, activations),
            weight_type=QuantType.QInt8,
        )

    return make


def four_bits(form, accuracy=None):
    def make(folder, to):
        from onnxruntime.quantization import QuantFormat
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantiser = MatMulNBitsQuantizer(load(folder), block_size=32, is_symmetric=True, quant_format=getattr(QuantFormat, form), accuracy_level=accuracy)
        quantiser.process()
        save(quantiser.model.model, to)

    return make


def half(keep_io):
    def make(folder, to):
        from onnxconverter_common import float16

        save(float16.convert_float_to_float16(load(folder), keep_io_types=keep_io), to)

    return make


def simplified(folder, to):
    import onnxsim

    model, good = onnxsim.simplify(load(folder))
    if not good:
        raise RuntimeError("onnxsim's own check failed")
    save(model, to)


def slim(folder, to):
    import onnxslim

    save(onnxslim.slim(load(folder)), to)


def opset(version):
    def make(folder, to):
        save(onnx.version_converter.convert_version(load(folder), version), to)

    return make


# What exporters write for a dimension without a name: two of these need not be equal.
NO_NAMES = ["", "?", "-1", "0"]


def dims(change):
    """The inputs' dimensions, and all that repeats them, by `change(name, size)`."""

    def make(folder, to):
        model, tensors = load(folder), data_set(folder) or []
        sizes = {}
        for value, tensor in zip(model.graph.input, tensors):
            for d, n in zip(value.type.tensor_type.shape.dim, tensor.shape):
                if d.dim_param not in NO_NAMES:
                    sizes[d.dim_param] = n
        del model.graph.value_info[:]
        for value in [*model.graph.input, *model.graph.output]:
            for d in value.type.tensor_type.shape.dim:
                if d.dim_param not in NO_NAMES:
                    change(d, sizes.get(d.dim_param))
        save(model, to)

    return make


def renamed(d, size):
    d.dim_param = f"{d.dim_param[::-1]}: p1 %0"


def fixed(d, size):
    name = d.dim_param
    d.ClearField("dim_param")
    if size is not None:
        d.dim_value = size
    elif name:
        d.dim_param = name


def nameless(d, size):
    d.ClearField("dim_param")


def has(*kinds):
    return lambda graph: any(node.op_type in kinds for node in graph.node)


def has_names(graph):
    return any(d.dim_param not in NO_NAMES for i in graph.input for d in i.type.tensor_type.shape.dim)


def always(graph):
    return True


PRODUCTS = has("MatMul", "Gemm", "Conv", "LSTM", "Attention")
# name: (what writes it, which graphs it is for, whether also those with large weights)
VARIANTS = {
    "original": (lambda folder, to: save(load(folder), to), always, True),
    "ort-basic": (offline("ORT_ENABLE_BASIC"), always, True),
    "ort-extended": (offline("ORT_ENABLE_EXTENDED"), always, True),
    "ort-all": (offline("ORT_ENABLE_ALL"), always, False),
    "ort-transformers": (transformers, has("Softmax", "Attention"), False),
    "dynamic-int8": (dynamic(False, "QInt8"), PRODUCTS, True),
    "dynamic-uint8-channels": (dynamic(True, "QUInt8"), PRODUCTS, False),
    "qdq-u8s8": (static("QDQ", False, "QUInt8"), PRODUCTS, False),
    "qdq-s8s8-channels": (static("QDQ", True, "QInt8"), PRODUCTS, False),
    "qoperator": (static("QOperator", False, "QUInt8"), PRODUCTS, False),
    "int4": (four_bits("QOperator"), has("MatMul"), True),
    "int4-qdq": (four_bits("QDQ"), has("MatMul"), False),
    # Here the file allows that activations are rounded to bytes.
    "int4-int8": (four_bits("QOperator", 4), has("MatMul"), True),
    "f16": (half(False), PRODUCTS, False),
    "f16-inside": (half(True), PRODUCTS, True),
    "onnxsim": (simplified, always, False),
    "onnxslim": (slim, always, False),
    "opset-11": (opset(11), always, False),
    "opset-13": (opset(13), always, False),
    "opset-21": (opset(21), always, False),
    "opset-28": (opset(28), always, True),
    "renamed-dims": (dims(renamed), has_names, True),
    "fixed-dims": (dims(fixed), has_names, False),
    "nameless-dims": (dims(nameless), has_names, False),
}

# Newer than the peers: what these compute is what their model computes.
UNKNOWN_TO_PEERS = ["opset-28"]


def variants(folder):
    graph, large = graph_alone(folder), weights_bytes(folder) > LARGE_BYTES
    return [name for name, (_, fits, of_large) in VARIANTS.items() if fits(graph) and (of_large or not large)]


def sessions(path):
    """ONNX Runtime as it comes, and without optimisations: how far two right answers may be apart."""
    made = []
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.log_severity_level = 4
        made.append(onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
    return made


def make(folder, variant, to):
    os.makedirs(to, exist_ok=True)
    try:
        VARIANTS[variant][0](folder, to)
        if variant not in UNKNOWN_TO_PEERS:
            onnxruntime.InferenceSession(os.path.join(to, "model.onnx"), providers=["CPUExecutionProvider"])
    except Exception as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0][:300], file=sys.stderr)
        sys.exit(3)


def inputs_of(graph, folder):
    """The data set of the model this file was made of, in the types that the file takes."""
    tensors = data_set(folder)
    if tensors is None:
        return None
    given = {tensor.name for tensor in graph.initializer}
    ports = [port for port in graph.input if port.name not in given]
    kinds = [onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type) for port in ports]
    return {port.name: tensor.astype(kind) if kind != object else tensor for port, tensor, kind in zip(ports, tensors, kinds)}


def reference(path, names, inputs, model):
    """What ONNX Runtime computes, as it comes and without optimisations; the model's own outputs where it takes no such file."""
    try:
        usual, plain = sessions(path)
    except Exception:
        outputs = data_set(model, 0, "output")
        return outputs, outputs
    return usual.run(names, inputs), plain.run(names, inputs)


def apart(wanted, got):
    """(largest difference relative to the largest element, cosine) of the worst output; what is no number must be so in both."""
    worst, cosine = 0.0, 1.0
    for want, have in zip(wanted, got):
        if not isinstance(want, np.ndarray) or want.dtype.kind not in "fiub":
            continue
        if want.shape != have.shape or want.dtype != have.dtype:
            return float("inf"), -1.0
        want, have = want.astype(np.float64).ravel(), have.astype(np.float64).ravel()
        finite = np.isfinite(want)
        if (finite != np.isfinite(have)).any():
            return float("inf"), -1.0
        want, have = want[finite], have[finite]
        if not want.size:
            continue
        scale = max(np.abs(want).max(), 1e-30)
        worst = max(worst, np.abs(want - have).max() / scale)
        lengths = np.linalg.norm(want) * np.linalg.norm(have)
        cosine = min(cosine, want @ have / lengths if lengths else float(not (want != have).any()))
    return float(worst), float(cosine)


def moved(path, names, inputs, usual):
    """For each output, the least cosine of ONNX Runtime's result with that of the same file after a third of its floats went up by one unit in the
    last place, and a third down: how far results of a net that rounds to codes are determined at all. None where that cannot be tried."""
    if weights_bytes(os.path.dirname(path)) > EXTERNAL_BYTES:
        return None
    least = [1.0] * len(usual)
    for seed in range(3):
        random, model = np.random.default_rng(seed), onnx.load(path)
        constants = [a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute if a.name == "value"]
        for tensor in [*model.graph.initializer, *constants]:
            if tensor.data_type != TensorProto.FLOAT:
                continue
            values = numpy_helper.to_array(tensor)
            way = random.integers(-1, 2, values.shape)
            towards = np.where(way == 0, values, way * np.float32(np.inf)).astype(np.float32)
            near = np.where((values == 0) | ~np.isfinite(values), values, np.nextafter(values, towards))
            near = np.where(np.isfinite(near), near, values).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(near, tensor.name))
        try:
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            found = [apart([u], [f]) for u, f in zip(usual, session.run(names, inputs))]
        except Exception:
            return None
        # Another shape, or what is no number, tells nothing: a scale of a Resize has moved.
        if all(np.isfinite(worst) for worst, _ in found):
            least = [min(pair) for pair in zip(least, (cosine for _, cosine in found))]
    return least


def blocks(graph):
    """What only the machine that wrote a file knows of it: this one."""
    if not any(node.domain == "com.microsoft.nchwc" for node in graph.node):
        return []
    with open("/proc/cpuinfo") as file:
        return ["--nchwc-block", "16" if "avx512f" in file.read() else "8"]


def ours(command, folder):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip()[:2000]
    return json.loads(done.stdout), None


def judge(folder, model, program, threads, rounds):
    path, artifact = os.path.join(folder, "model.onnx"), os.path.join(folder, "model.sdx")
    row = {}
    began = time.perf_counter()
    graph = graph_alone(folder)
    command = [program, "compile", path, "-o", artifact, "--json", *blocks(graph)]
    compiled = subprocess.run(command, capture_output=True, text=True)
    row["compile_s"] = time.perf_counter() - began
    row["compile_code"], row["said"] = compiled.returncode, compiled.stderr.strip()[:3000]
    if compiled.returncode == 0:
        remarks = json.loads(compiled.stdout).get("remarks", [])
        row["slow"] = [f"{r['node']}: {r['reason']}, {r['detail']}" for r in remarks if r["kind"] == "slow"]
    inputs, names = inputs_of(graph, model), [port.name for port in graph.output]
    if compiled.returncode != 0 or inputs is None:
        return row
    wanted, other = reference(path, names, inputs, model)
    row["peer_apart"], row["peer_cosine"] = apart(other, wanted)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        given = os.path.join(scratch, "inputs.npz")
        np.savez(given, **inputs)
        out = os.path.join(scratch, "out")
        run = [program, "run", artifact, "--inputs", given, "--output-dir", out, "--threads", str(threads), "--json"]
        printed, row["run_error"] = ours(run, scratch)
        if printed is None:
            return row
        files = {output["name"]: output["file"] for output in printed["outputs"]}
        got = [np.load(files[name]) if name in files else None for name in names]
        pairs = [(apart([w], [h]), apart([o], [h])) for w, o, h in zip(wanted, other, got) if isinstance(w, np.ndarray) and h is not None]
        # The nearer of the two right answers.
        nearest = [min(pair) for pair in pairs]
        row["compared"] = len(nearest)
        # How far either is from the model that the file was made of.
        outputs = data_set(model, 0, "output")
        if outputs and len(outputs) == len(got) == len(wanted) and all(h is not None for h in got):
            alike = [o.astype(w.dtype) if isinstance(w, np.ndarray) else o for o, w in zip(outputs, wanted)]
            row["to_model"], row["peer_to_model"] = apart(alike, got)[0], apart(alike, wanted)[0]
        row["apart"] = max((worst for worst, _ in nearest), default=0.0)
        row["cosine"] = min((cosine for _, cosine in nearest), default=1.0)
        if row["cosine"] < MOVED_BELOW and len(nearest) == len(wanted):
            # The peer's at the output where ours is the furthest.
            at = min(range(len(nearest)), key=lambda i: nearest[i][1])
            row["peer_moved"] = (moved(path, names, inputs, wanted) or [None] * len(wanted))[at]
        if rounds and os.path.basename(folder).split("__")[1] not in UNKNOWN_TO_PEERS:
            row |= times(path, artifact, inputs, given, program, threads, rounds)
    return row


def passing_rate():
    """Median rate in GB/s at which one processor reads what another has just written; None without two processors."""
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        return None
    shared = multiprocessing.RawArray("b", PASSED_BYTES)
    array, copy = np.frombuffer(shared, dtype=np.uint8), np.zeros(PASSED_BYTES, dtype=np.uint8)
    ours, other = multiprocessing.Pipe()

    def write():
        os.sched_setaffinity(0, {processors[1]})
        while other.recv():
            array.fill(1)
            other.send(True)

    writer = multiprocessing.get_context("fork").Process(target=write, daemon=True)
    writer.start()
    other.close()
    seconds = []
    try:
        os.sched_setaffinity(0, {processors[0]})
        for _ in range(41):
            ours.send(True)
            ours.recv()
            begin = time.perf_counter()
            np.copyto(copy, array)
            seconds.append(time.perf_counter() - begin)
        ours.send(False)
        writer.join()
    finally:
        os.sched_setaffinity(0, set(processors))
    return PASSED_BYTES / statistics.median(seconds) / 1e9


def settle(folder):
    """Waits until two processors pass data about as fast as at best so far. A virtual machine's processors may be moved:
    for seconds or minutes, what one has written reaches the other at a third of the usual rate. Returns the part of the
    best rate, which the folder above keeps."""
    known, end = os.path.join(os.path.dirname(folder), "passing-rate"), time.monotonic() + WAIT_MAX
    best = float(open(known).read()) if os.path.exists(known) else 0.0
    while True:
        rate = passing_rate()
        if rate is None:
            return 1.0
        if rate > best:
            best = rate
            with open(known, "w") as file:
                file.write(str(best))
        if rate >= USUAL * best or time.monotonic() >= end:
            return rate / best
        time.sleep(LOOK_EVERY)


def times(path, artifact, inputs, given, program, threads, rounds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    calls = {"onnxruntime": lambda: session.run(None, inputs)}
    try:
        import openvino

        core = openvino.Core()
        net = core.read_model(path)
        net.reshape({port.get_any_name(): list(inputs[port.get_any_name()].shape) for port in net.inputs})
        hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        request = core.compile_model(net, "CPU", hints).create_infer_request()
        request.infer(inputs)
        calls["openvino"] = lambda: request.infer(inputs)
    except Exception:
        pass  # It does not take every file; ONNX Runtime is the peer then.
    taken = {name: [] for name in [*calls, "ours"]}
    command = [program, "bench", artifact, "--inputs", given, "--threads", str(threads), "--min-time", str(SECONDS), "--json"]
    passed = settle(os.path.dirname(path))
    for _ in range(rounds):
        for name, call in calls.items():
            begin, n = time.perf_counter(), 0
            while n < CALLS or time.perf_counter() - begin < SECONDS:
                start = time.perf_counter()
                call()
                taken[name].append((time.perf_counter() - start) * 1e3)
                n += 1
        printed, error = ours(command, None)
        if printed is None:
            return {"bench_error": error}
        taken["ours"].append(printed["median_ms"])
    return {"ms": {name: statistics.median(ms) for name, ms in taken.items()}, "passed": passed}


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "source":
        source(*arguments)
    elif command == "variants":
        print("\n".join(variants(*arguments)))
    elif command == "make":
        make(*arguments)
    else:
        folder, model, program, threads, rounds = arguments
        print(json.dumps(judge(folder, model, program, int(threads), int(rounds))))
