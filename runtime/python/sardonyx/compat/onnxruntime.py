"""The names of ONNX Runtime over this one.

    import sardonyx.compat.onnxruntime as onnxruntime
    session = onnxruntime.InferenceSession("model.onnx")
    outputs = session.run(None, {"input_ids": ids})

A `.onnx` is compiled by the program `sardonyx`, found by $SARDONYX_COMPILER, beside this interpreter, where the package
`sardonyx-compiler` puts it, or on the path, into a folder of artifacts ($SARDONYX_CACHE, or `sardonyx` in the user's cache
folder) that are known by the content of the model, the options and the compiler; the next process loads what is there. A
`.sdx` is loaded as it is. `install()` makes `import onnxruntime` mean this module, for packages that are to run unchanged.
"""

from __future__ import annotations

import enum
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

import sardonyx
from sardonyx.compat import _onnx

__version__ = "1.31.1"

_PROVIDER = "CPUExecutionProvider"


class OnnxRuntimeException(Exception):
    """What ONNX Runtime raises; `__cause__` has the error of this runtime where there is one."""


class Fail(OnnxRuntimeException):
    pass


class InvalidArgument(OnnxRuntimeException):
    pass


class NoSuchFile(OnnxRuntimeException):
    pass


class InvalidGraph(OnnxRuntimeException):
    pass


class NotImplemented(OnnxRuntimeException):  # noqa: A001, its name there
    pass


class GraphOptimizationLevel(enum.IntEnum):
    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class SessionOptions:
    """Threads, and sizes of dimensions; what this runtime has no choice about is accepted and does nothing.

    `add_session_config_entry("sardonyx.compile", "--precision bf16")` gives the compiler further options.
    """

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.optimized_model_filepath = ""
        self.profile_file_prefix = "onnxruntime_profile_"
        self.use_deterministic_compute = False
        self._dims: Dict[str, int] = {}
        self._entries: Dict[str, str] = {}

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        self._dims[name] = size

    def add_session_config_entry(self, key: str, value: str) -> None:
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        return self._entries[key]


class RunOptions:
    """`terminate` ends the calls that it is given to."""

    def __init__(self) -> None:
        self._cancel = sardonyx.Cancel()
        self._terminate = False
        self.log_severity_level = -1
        self.logid = ""
        self.only_execute_path_to_fetches = False

    @property
    def terminate(self) -> bool:
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._terminate = bool(value)
        if value:
            self._cancel.set()
        else:
            self._cancel.clear()


_TYPES = {
    "f32": "float",
    "f64": "double",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "c64": "complex64",
    "c128": "complex128",
}

# What lists of numbers are made into.
_NUMPY = {**_TYPES, "f32": "float32", "f64": "float64", "bool": "bool", "string": "object"}
del _NUMPY["bf16"]


class NodeArg:
    """An input or an output: `name`, `type` such as `tensor(float)`, `shape` of numbers and names."""

    def __init__(self, port: sardonyx.Port) -> None:
        self.name = port.name
        self.type = f"tensor({_TYPES.get(port.dtype, port.dtype)})"
        self.shape: List[Union[int, str]] = list(port.dims)

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


class ModelMetadata:
    def __init__(self, description: Optional[_onnx.Description], producer: str) -> None:
        found = description if description is not None else _onnx.Description(b"")
        self.producer_name = found.producer_name if description is not None else producer
        self.graph_name = found.graph_name
        self.graph_description = found.graph_doc_string
        self.domain = found.domain
        self.description = found.doc_string
        self.version = found.model_version
        self.custom_metadata_map = found.metadata


def get_available_providers() -> List[str]:
    return [_PROVIDER]


def get_all_providers() -> List[str]:
    return [_PROVIDER]


def get_device() -> str:
    return "CPU"


def get_version_string() -> str:
    return __version__


def set_default_logger_severity(severity: int) -> None:
    """Nothing is logged."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Nothing is logged."""


def disable_telemetry_events() -> None:
    """There are none."""


def set_seed(seed: int) -> None:
    """A model's random numbers follow from the model."""


def _compiler() -> str:
    named = os.environ.get("SARDONYX_COMPILER")
    beside = shutil.which("sardonyx", path=sysconfig.get_path("scripts"))
    found = shutil.which(named) if named else beside or shutil.which("sardonyx")
    if found is None:
        what = f"$SARDONYX_COMPILER is {named}, which is no program" if named else "there is no program `sardonyx`"
        raise Fail(f"the model has to be compiled, but {what}: install `sardonyx-compiler`, or give a `.sdx`")
    return found


def _cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.environ.get("SARDONYX_CACHE") or os.path.join(base, "sardonyx")
    # Artifacts are native code: nobody else may put some there.
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.stat(folder)
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise Fail(f"others may write to {folder}, from which code is loaded: make it your own (chmod go-w)")
    return folder


def _hash(parts: Sequence[bytes], files: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    for path in files:
        digest.update(os.path.basename(path).encode())
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    return digest.hexdigest()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _compiled(model: bytes, path: Optional[str], options: SessionOptions) -> str:
    """The artifact of a model, made where it is not there."""
    compiler = _compiler()
    status = os.stat(compiler)
    version = f"{os.path.realpath(compiler)} {status.st_size} {status.st_mtime_ns}".encode()
    arguments = [part for name, size in sorted(options._dims.items()) for part in ("--dim", f"{name}={size}")]
    arguments += shlex.split(options._entries.get("sardonyx.compile", ""))
    external = _onnx.external_files(model, os.path.dirname(os.path.abspath(path))) if path is not None else []
    key = _hash([model, version, *(argument.encode() for argument in arguments)], external)
    folder = _cache_folder()
    artifact = os.path.join(folder, f"{key}.sdx")
    if os.path.isfile(artifact):
        return artifact
    # What is half done has another name, and each process its own.
    with tempfile.TemporaryDirectory(dir=folder) as work:
        source = path
        if source is None:
            source = os.path.join(work, "model.onnx")
            with open(source, "wb") as file:
                file.write(model)
        made = os.path.join(work, "model.sdx")
        done = subprocess.run([compiler, "compile", source, "-o", made, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            refused = InvalidGraph if done.returncode == 2 else Fail
            raise refused(done.stderr.strip())
        os.replace(made, artifact)
    return artifact


def _raised(error: sardonyx.Error) -> OnnxRuntimeException:
    kinds = {"input": InvalidArgument, "usage": InvalidArgument, "file": NoSuchFile}
    raised = kinds.get(error.kind, Fail)(str(error))
    raised.__cause__ = error
    return raised


class InferenceSession:
    """A model with the names of ONNX Runtime. Several threads may call `run` at once, as there."""

    def __init__(
        self,
        path_or_bytes: Union[str, "os.PathLike[str]", bytes],
        sess_options: Optional[SessionOptions] = None,
        providers: Optional[Sequence[Union[str, Tuple[str, Dict[str, Any]]]]] = None,
        provider_options: Optional[Sequence[Dict[str, Any]]] = None,
        **kwargs: Any,
    ) -> None:
        self._options = sess_options if sess_options is not None else SessionOptions()
        names = [name if isinstance(name, str) else name[0] for name in providers or [_PROVIDER]]
        if _PROVIDER not in names:
            raise InvalidArgument(f"of the providers {names} there is none here: there is {_PROVIDER}")
        path = None if isinstance(path_or_bytes, bytes) else os.fspath(path_or_bytes)
        if path is not None and not os.path.isfile(path):
            raise NoSuchFile(f"there is no file {path}")
        self._model_path = path or ""
        try:
            self._model, self._meta = self._load(path_or_bytes, path)
        except sardonyx.Error as error:
            raise _raised(error) from error
        self._entry = self._model.entry_points[0]
        self._free: List[sardonyx.Session] = []
        self._lock = threading.Lock()
        self._give(self._take())

    def _load(self, given: Any, path: Optional[str]) -> Tuple[sardonyx.Model, ModelMetadata]:
        if path is not None and path.endswith(".sdx"):
            model = sardonyx.Model(path, trust=True)
            return model, ModelMetadata(None, model.producer)
        data = _read(path) if path is not None else given
        if data[:4] == b"PK\x03\x04":
            model = sardonyx.Model(data, trust=True)
            return model, ModelMetadata(None, model.producer)
        model = sardonyx.Model(_compiled(data, path, self._options), trust=True)
        return model, ModelMetadata(_onnx.Description(data), model.producer)

    def _take(self) -> sardonyx.Session:
        with self._lock:
            if self._free:
                return self._free.pop()
        threads = self._options.intra_op_num_threads or len(os.sched_getaffinity(0))
        try:
            return self._model.session(threads=threads)
        except sardonyx.Error as error:
            raise _raised(error) from error

    def _give(self, session: sardonyx.Session) -> None:
        with self._lock:
            self._free.append(session)

    def run(
        self,
        output_names: Optional[Sequence[str]],
        input_feed: Dict[str, Any],
        run_options: Optional[RunOptions] = None,
    ) -> List[Any]:
        names = list(output_names) if output_names else [port.name for port in self._entry.outputs]
        cancel = run_options._cancel if run_options is not None else None
        feed = {name: self._array(name, value) for name, value in input_feed.items()}
        session = self._take()
        try:
            found = session.run(feed, sorted(set(names)), entry=self._entry.name, cancel=cancel)
        except sardonyx.Error as error:
            raise _raised(error) from error
        finally:
            self._give(session)
        return [found[name] for name in names]

    def _array(self, name: str, value: Any) -> Any:
        """An array is taken as it is; a list becomes one of the input's type, as there."""
        if isinstance(value, np.ndarray) or hasattr(value, "__dlpack__"):
            return value
        port = next((port for port in self._entry.inputs if port.name == name), None)
        dtype = _NUMPY.get(port.dtype) if port is not None else None
        return np.asarray(value, dtype=dtype)

    def get_inputs(self) -> List[NodeArg]:
        return [NodeArg(port) for port in self._entry.inputs]

    def get_outputs(self) -> List[NodeArg]:
        return [NodeArg(port) for port in self._entry.outputs]

    def get_overridable_initializers(self) -> List[NodeArg]:
        return []

    def get_modelmeta(self) -> ModelMetadata:
        return self._meta

    def get_providers(self) -> List[str]:
        return [_PROVIDER]

    def get_provider_options(self) -> Dict[str, Dict[str, str]]:
        return {_PROVIDER: {}}

    def set_providers(self, providers: Sequence[Any], provider_options: Any = None) -> None:
        """There is one."""

    def get_session_options(self) -> SessionOptions:
        return self._options

    def disable_fallback(self) -> None:
        """Nothing falls back."""

    def enable_fallback(self) -> None:
        """Nothing falls back."""

    def end_profiling(self) -> str:
        raise NotImplemented("`sardonyx bench MODEL.sdx --trace CALL.json` shows where the time goes")

    def io_binding(self) -> Any:
        raise NotImplemented("give `sardonyx.Session.run` arrays for outputs: `out={name: array}`")


def install() -> None:
    """Makes `import onnxruntime` mean this module."""
    sys.modules["onnxruntime"] = sys.modules[__name__]
