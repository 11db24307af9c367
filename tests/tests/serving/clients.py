"""A client that others have published, against a server  =>  the numbers of a plain request

usage: clients.py openai|tei|triton|kserve HOST:PORT EMBEDDER DECODER

Each in a process of its own, for some of them declare the same messages. The embedder has a tokenizer; the decoder needs none.
"""

import asyncio
import json
import sys
import urllib.request

import numpy as np

part, address, embedder, decoder = sys.argv[1:]
url = "http://" + address
texts = ["A man is playing a guitar on stage.", "Someone is playing guitar.", "The cat sleeps."]
output = "sentence_embedding"


def post(path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


wanted = [e["embedding"] for e in post("/v1/embeddings", {"model": embedder, "input": texts})["data"]]
ids = [[token["id"] for token in tokens] for tokens in post("/tokenize", {"inputs": texts})]


def equal(name, got, wanted=wanted):
    got, wanted = np.asarray(got, np.float32), np.asarray(wanted, np.float32)
    assert got.shape == wanted.shape and (got == wanted).all(), f"{name} has other numbers"
    print(f"{name}: equal")


def inputs(row, port):
    """A text as tensors of one row."""
    row = np.array([row], np.int64)
    values = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
    return [port(name, value) for name, value in values.items()]


def of_openai():
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    assert {embedder, decoder} <= {model.id for model in client.models.list()}
    # It asks for base64 unless it is told otherwise.
    equal("openai", [e.embedding for e in client.embeddings.create(model=embedder, input=texts).data])
    floats = client.embeddings.create(model=embedder, input=texts, encoding_format="float")
    equal("openai, floats", [e.embedding for e in floats.data])
    short = client.embeddings.create(model=embedder, input=texts[0], dimensions=16).data[0].embedding
    assert len(short) == 16 and abs(np.linalg.norm(short) - 1) < 1e-5
    prompt = {"model": decoder, "prompt": [1, 42, 7], "max_tokens": 5, "temperature": 0}
    extra = {"return_token_ids": True}
    whole = client.completions.create(**prompt, extra_body=extra).choices[0]
    pieces = client.completions.create(**prompt, stream=True, extra_body=extra)
    streamed = [token for piece in pieces for token in piece.choices[0].token_ids]
    assert whole.finish_reason == "length" and len(streamed) == 5
    equal("openai, streamed tokens", streamed, whole.token_ids)
    try:
        client.embeddings.create(model="absent", input="a")
        raise AssertionError("an absent model answers")
    except openai.NotFoundError as error:
        assert "absent" in str(error)


def of_tei():
    import tei_client

    client = tei_client.HttpClient(url)
    assert client.health() and client.info().server_model_id == embedder
    # Its methods give a vector, or a list of one.
    equal("tei-client", [np.asarray(client.embed(text)).ravel() for text in texts])


def of_triton():
    import tritonclient.grpc.aio
    import tritonclient.http.aio

    def port(module):
        def make(name, value):
            made = module.InferInput(name, list(value.shape), "INT64")
            made.set_data_from_numpy(value)
            return made

        return make

    async def at_once(module):
        client = module.aio.InferenceServerClient(address)
        calls = [client.infer(embedder, inputs(row, port(module))) for row in ids]
        equal(module.aio.__name__, [answer.as_numpy(output)[0] for answer in await asyncio.gather(*calls)])
        await client.close()

    for module in (tritonclient.http, tritonclient.grpc):
        client = module.InferenceServerClient(address)
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(embedder)
        client.get_model_metadata(embedder)
        client.get_inference_statistics(embedder)
        equal(module.__name__, [client.infer(embedder, inputs(row, port(module))).as_numpy(output)[0] for row in ids])
        try:
            client.infer(embedder, inputs(ids[0], port(module))[:1])
            raise AssertionError("a missing input is no error")
        except tritonclient.utils.InferenceServerException as error:
            assert "attention_mask" in str(error), error
        asyncio.run(at_once(module))


def of_kserve():
    import kserve

    def port(name, value):
        return kserve.InferInput(name, list(value.shape), "INT64", value.ravel().tolist())

    async def ask():
        requests = [kserve.InferRequest(embedder, inputs(row, port)) for row in ids]
        rest = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2"))
        assert await rest.is_server_live(url) and await rest.is_model_ready(url, embedder)
        answers = [await rest.infer(url, request, model_name=embedder) for request in requests]
        equal("kserve, REST", [answer.outputs[0].as_numpy()[0] for answer in answers])
        grpc = kserve.InferenceGRPCClient(address)
        answers = [await grpc.infer(request) for request in requests]
        equal("kserve, gRPC", [answer.outputs[0].as_numpy()[0] for answer in answers])

    asyncio.run(ask())


{"openai": of_openai, "tei": of_tei, "triton": of_triton, "kserve": of_kserve}[part]()
