import os
from concurrent.futures import Future
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy.typing as npt

from ._error import Error as Error

__version__: str
__all__: List[str]

class Symbol:
    """A dimension that is open. `hi` is None where nothing bounds it."""

    @property
    def name(self) -> str: ...
    @property
    def lo(self) -> int: ...
    @property
    def hi(self) -> Optional[int]: ...
    @property
    def is_data(self) -> bool:
        """Whether it follows from the values of the inputs, and so is known only when a call ends."""

class Port:
    """An input or an output: `dims` are numbers, and expressions of symbols such as `past + seq`."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def dims(self) -> List[Union[int, str]]: ...
    @property
    def is_state(self) -> bool:
        """Whether a `Cache` can hold it from call to call."""

class EntryPoint:
    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> List[Port]: ...
    @property
    def outputs(self) -> List[Port]: ...
    @property
    def symbols(self) -> List[Symbol]: ...

class CallBytes:
    """What a call takes beside the weights; at most that, where it is not exact."""

    @property
    def is_exact(self) -> bool: ...
    @property
    def arena(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def made(self) -> int: ...
    @property
    def scratch_per_thread(self) -> int: ...

class Model:
    """A loaded, verified artifact. `bytes` are used in place. It holds native code, which can do all that the process can.

    So the artifact with the seal `pin`, as `sardonyx inspect` prints it, is loaded, or one that `key` has signed (a public
    key of Ed25519, as PEM or 64 hexadecimal digits), or, with `trust=True`, whatever the file is.
    """

    def __init__(
        self,
        path_or_bytes: Union[str, "os.PathLike[str]", bytes],
        *,
        pin: Optional[str] = None,
        key: Optional[str] = None,
        trust: bool = False,
        copy: bool = False,
        device: str = "cpu",
        verify: str = "full",
        selftest: bool = True,
    ) -> None: ...
    @property
    def entry_points(self) -> List[EntryPoint]: ...
    @property
    def file(self) -> str: ...
    @property
    def producer(self) -> str: ...
    def call_bytes(self, entry: str = "main", **sizes: int) -> Optional[CallBytes]:
        """Of a call whose symbols have these sizes: `model.call_bytes(batch=8, seq=128)`. None where nothing bounds it."""
    def session(
        self,
        *,
        threads: int = 1,
        pinned: bool = False,
        memory_bytes_max: Optional[int] = None,
        cuda_stream: Optional[int] = None,
    ) -> Session:
        """`cuda_stream` is the address of a stream of the model's GPU that calls work on, as `torch.cuda.Stream.cuda_stream`
        has it; 0 is the default stream. Without it a session has a stream of its own."""
    def pool(
        self,
        *,
        sessions: Optional[int] = None,
        threads: int = 1,
        waiting_max: int = 128,
        memory_bytes_max: Optional[int] = None,
    ) -> Pool:
        """As many sessions as the processors allow, where `sessions` is absent."""

class Cancel:
    """Given to calls, it ends them (E0306) once it is set, by any thread."""

    def __init__(self) -> None: ...
    def set(self) -> None: ...
    def clear(self) -> None: ...

class Cache:
    """The keys and values of a decoder, kept from call to call; its length is the number of filled positions."""

    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def truncate(self, len: int) -> None: ...
    def clear(self) -> None: ...
    def array(self, name: str) -> npt.NDArray[Any]: ...

class Session:
    def run(
        self,
        inputs: Dict[str, Any],
        outputs: Optional[Sequence[str]] = None,
        *,
        entry: str = "main",
        out: Optional[Dict[str, Any]] = None,
        cache: Optional[Cache] = None,
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> Dict[str, Any]:
        """Arrays, and what speaks DLPack, by name of the input. `outputs` are those to return, all where it is absent.
        `out` has arrays that outputs are written to. `timeout` is in seconds (E0305).

        With a model on a GPU, inputs and arrays of `out` may be in its memory (`__cuda_array_interface__`: tensors of PyTorch,
        arrays of CuPy and Numba); then all arrays of `out` are. A call waits for the stream that an array names, and for the
        default stream if its interface is older than version 3, as PyTorch's. Wait for work on other streams first, or make
        the session with `cuda_stream`. Outputs that are not in `out` are NumPy arrays."""
    def cache(self, capacity: int, *, entry: str = "main") -> Cache: ...
    def trim(self) -> int:
        """Gives the memory of the idle session back to the system; returns the number of bytes."""
    @property
    def threads(self) -> int: ...

class Pool:
    """Sessions that take calls from one bounded queue, in order of arrival."""

    def submit(
        self,
        inputs: Dict[str, Any],
        outputs: Optional[Sequence[str]] = None,
        *,
        entry: str = "main",
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
    ) -> "Future[Dict[str, npt.NDArray[Any]]]":
        """Copies the inputs and returns at once; `asyncio.wrap_future` awaits the answer. More than may wait are refused
        (E0308). Time in the queue is part of `timeout`."""
    def trim(self) -> int:
        """Gives the memory of idle sessions back to the system; returns the number of bytes."""
    def finish(self) -> None:
        """Refuses calls from now on, and returns when all that were accepted are answered."""
    def statistics(self) -> Dict[str, int]: ...
    @property
    def sessions(self) -> int: ...
