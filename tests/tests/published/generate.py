"""generate.py WHEEL MODULE BUILDER [NUMBER...]  =>  `// launch grid block shared`, then the PTX that a kernel of pyptx's is

The examples import JAX and NumPy to run on a GPU; for the text they are not needed and stand-ins do.
"""
import importlib
import sys
import types


class Absent(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(name)

    def __call__(self, *args, **kwargs):
        return self


for name in ("jax", "jax.numpy", "numpy"):
    sys.modules[name] = Absent(name)
wheel, module, builder, *numbers = sys.argv[1:]
sys.path.insert(0, wheel)
kernel = getattr(importlib.import_module(module), builder)(*map(int, numbers))
text = kernel.ptx()
grid = kernel.grid() if callable(kernel.grid) else kernel.grid
print("// launch", *grid, *kernel.block, kernel.smem)
print(text)
