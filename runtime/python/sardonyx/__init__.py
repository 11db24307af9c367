"""Runs models that the Sardonyx compiler has written.

    model = sardonyx.Model("model.sdx", pin="9f2c…")
    session = model.session(threads=2)
    outputs = session.run({"input_ids": ids, "attention_mask": mask})

Arrays are read and written where they lie: an input is copied only where it is not contiguous, and an output is an array
over the memory that the call wrote. Loading and calls release the interpreter's lock; the calls of one session take turns,
so give each thread a session of its own, or all of them a pool: `model.pool().submit({...})` is a future. Sessions share
the weights.
"""

from ._error import Error
from ._native import Cache, CallBytes, Cancel, EntryPoint, Model, Pool, Port, Session, Symbol, __version__

__all__ = [
    "Cache",
    "CallBytes",
    "Cancel",
    "EntryPoint",
    "Error",
    "Model",
    "Pool",
    "Port",
    "Session",
    "Symbol",
    "__version__",
]
