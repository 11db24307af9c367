"""python client.py MINILM.sdx MODEL.onnx: the served embedding, the artifact's own, and that of the compiled model agree"""

import json
import sys
import time
import urllib.request

import numpy as np
import sardonyx
from sardonyx.compat import onnxruntime

SERVER = "http://127.0.0.1:8417"
TEXT = "A man is playing a guitar on stage."


def ask(path, body=None):
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(SERVER + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def wait():
    for _ in range(300):
        try:
            return ask("/v2/health/ready")
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


wait()
served = json.loads(ask("/v1/embeddings", {"model": "minilm", "input": TEXT}))["data"][0]["embedding"]
ids = np.array([[token["id"] for token in json.loads(ask("/tokenize", {"inputs": TEXT}))[0]]])
inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}

model = sardonyx.Model(sys.argv[1], trust=True)
wanted = {name: inputs[name] for name in (port.name for port in model.entry_points[0].inputs)}
(own,) = model.session(threads=1).run(wanted).values()
assert np.array_equal(np.float32(served), own[0]), "the server and the module differ"

session = onnxruntime.InferenceSession(sys.argv[2])
states = session.run(None, {port.name: inputs[port.name] for port in session.get_inputs()})[0][0]
pooled = states.mean(axis=0)
assert np.allclose(pooled / np.linalg.norm(pooled), own[0], atol=1e-5), "the module and the compiled model differ"
print(f"served, computed and compiled anew: an embedding of {own.shape[1]} numbers, {own[0][0]:.6f} first")
