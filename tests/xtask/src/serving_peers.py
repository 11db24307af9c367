"""A model and its tokenizer behind a server of another project: POST {"input": TEXT}  =>  {"embedding": base64 of f32, "tokens": N}

usage: serving_peers.py mosec|litserve onnxruntime|openvino MODEL.onnx tokenizer.json PORT THREADS BATCH

Requests that wait are computed together, at most BATCH, padded to the longest; token vectors are averaged over the mask, and
the mean has length 1.
"""

import base64
import os
import sys

import numpy as np
import tokenizers

# A process that a server starts again reads the same words.
NAMES = ("SERVER", "ENGINE", "MODEL", "TOKENIZER", "PORT", "THREADS", "BATCH")
for name, word in zip(NAMES, sys.argv[1:]):
    os.environ.setdefault("PEER_" + name, word)
server, engine, model, tokenizer_path, port, threads, batch = (os.environ["PEER_" + name] for name in NAMES)
threads, batch = int(threads), int(batch)
# The servers read the command line, too.
sys.argv[1:] = []


class Embedder:
    def __init__(self):
        self.tokenizer = tokenizers.Tokenizer.from_file(tokenizer_path)
        self.tokenizer.no_truncation()
        self.tokenizer.enable_padding()
        if engine == "onnxruntime":
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            names = [port.name for port in session.get_inputs()]
            self.run = lambda inputs: session.run(None, {name: inputs[name] for name in names})[0]
        else:
            import openvino

            hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
            net = openvino.Core().compile_model(model, "CPU", hints)
            request = net.create_infer_request()
            names = [port.get_any_name() for port in net.inputs]

            def run(inputs):
                request.infer({name: inputs[name] for name in names})
                return request.get_output_tensor(0).data

            self.run = run

    def __call__(self, texts):
        encodings = self.tokenizer.encode_batch(texts)
        mask = np.array([e.attention_mask for e in encodings], np.int64)
        inputs = {
            "input_ids": np.array([e.ids for e in encodings], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(mask),
        }
        weights = mask[:, :, None].astype(np.float32)
        means = (self.run(inputs) * weights).sum(1) / weights.sum(1)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        texts = [base64.b64encode(mean.tobytes()).decode() for mean in means]
        return [{"embedding": text, "tokens": n} for text, n in zip(texts, mask.sum(1).tolist())]


if server == "mosec":
    import mosec

    class Worker(mosec.Worker):
        def __init__(self):
            super().__init__()
            self.embed = Embedder()

        def forward(self, data):
            many = data if isinstance(data, list) else [data]
            answers = self.embed([d["input"] for d in many])
            return answers if isinstance(data, list) else answers[0]

    if __name__ == "__main__":
        sys.argv[1:] = ["--port", port, "--address", "127.0.0.1", "--capacity", "4096", "--timeout", "60000", "--log-level", "warning"]
        peer = mosec.Server()
        # Time to wait for others is what it takes to read them, for a session that is busy lets them gather by itself.
        peer.append_worker(Worker, num=1, max_batch_size=batch, max_wait_time=1)
        peer.run()
else:
    import litserve

    class Api(litserve.LitAPI):
        def setup(self, device):
            self.embed = Embedder()

        def decode_request(self, request):
            return request["input"]

        def batch(self, inputs):
            return inputs

        def predict(self, inputs):
            many = inputs if isinstance(inputs, list) else [inputs]
            answers = self.embed(many)
            return answers if isinstance(inputs, list) else answers[0]

        def unbatch(self, outputs):
            return outputs

        def encode_response(self, output):
            return output

    if __name__ == "__main__":
        peer = litserve.LitServer(
            Api(max_batch_size=batch, batch_timeout=0.001 if batch > 1 else 0.0), accelerator="cpu", timeout=60
        )
        peer.run(host="127.0.0.1", port=int(port), generate_client_file=False)
