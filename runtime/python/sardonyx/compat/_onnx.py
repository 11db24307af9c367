"""What an ONNX file says of itself, without the onnx package: names, metadata, and the files that hold its weights."""

from __future__ import annotations

import os
import re
from typing import Dict, Iterator, List, Tuple, Union

Field = Tuple[int, Union[int, memoryview]]


def _varint(data: memoryview, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def fields(data: memoryview) -> Iterator[Field]:
    """(number, value) of each field of a protobuf message; nested ones are bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(data, at)
        if size is None or at + size > len(data):
            raise ValueError("the message is cut off")
        yield number, data[at : at + size]
        at += size


def _text(value: Union[int, memoryview]) -> str:
    return "" if isinstance(value, int) else bytes(value).decode("utf-8", "replace")


class Description:
    """The fields of a ModelProto that say what the model is."""

    def __init__(self, model: bytes) -> None:
        self.producer_name = self.domain = self.doc_string = self.graph_name = self.graph_doc_string = ""
        # What ONNX Runtime says where the file says nothing.
        self.model_version = (1 << 63) - 1
        self.metadata: Dict[str, str] = {}
        texts = {2: "producer_name", 4: "domain", 6: "doc_string"}
        try:
            for number, value in fields(memoryview(model)):
                if number in texts:
                    setattr(self, texts[number], _text(value))
                elif number == 5 and isinstance(value, int):
                    self.model_version = value
                elif number == 7 and not isinstance(value, int):
                    self._graph(value)
                elif number == 14 and not isinstance(value, int):
                    entry = {n: _text(v) for n, v in fields(value)}
                    self.metadata[entry.get(1, "")] = entry.get(2, "")
        except (ValueError, IndexError):
            # The compiler says what is wrong with the file.
            pass

    def _graph(self, graph: memoryview) -> None:
        for number, value in fields(graph):
            if number == 2:
                self.graph_name = _text(value)
            elif number == 10:
                self.graph_doc_string = _text(value)


def external_files(model: bytes, folder: str) -> List[str]:
    """The files with weights that the model names and that are there, sorted."""
    # StringStringEntryProto { key: "location", value: … } of a name shorter than 128 bytes.
    found = set()
    for match in re.finditer(rb"\n\x08location\x12([\x01-\x7f])", model):
        name = model[match.end() : match.end() + match.group(1)[0]]
        path = os.path.join(folder, name.decode("utf-8", "replace"))
        if os.path.isfile(path):
            found.add(path)
    return sorted(found)
