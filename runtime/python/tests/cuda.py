"""Arrays in the memory of a GPU, on a stand-in driver. `cargo xtask test --suite embedding` runs this with an artifact for
CPUs and GPUs: y is computed of the rows of x, z is x."""

import ctypes
import sys
import unittest

import numpy as np

import sardonyx

PATH = sys.argv.pop()
DRIVER = ctypes.CDLL("libcuda.so")
CONTEXT = ctypes.c_void_p()
X = (np.arange(40) * 7 % 33 / 4 - 4).astype(np.float32).reshape(5, 8)


def call(name, *arguments):
    """A call of the driver in the primary context."""
    assert DRIVER.cuCtxPushCurrent_v2(CONTEXT) == 0
    result = getattr(DRIVER, name)(*arguments)
    assert DRIVER.cuCtxPopCurrent_v2(ctypes.byref(CONTEXT)) == 0
    assert result == 0, (name, result)


def stream():
    made = ctypes.c_void_p()
    call("cuStreamCreate", ctypes.byref(made), 1)
    return made


class Array:
    """What PyTorch and CuPy say of their arrays."""

    def __init__(self, values, **interface):
        self.values = np.ascontiguousarray(values)
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(self.values.nbytes))
        call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(self.values.ctypes.data), ctypes.c_size_t(self.values.nbytes))
        self.address = address
        self.interface = {"shape": self.values.shape, "typestr": self.values.dtype.str, "version": 3}
        self.interface |= {"data": (address.value, False), "strides": None} | interface

    @property
    def __cuda_array_interface__(self):
        return self.interface

    def numpy(self):
        values = np.empty_like(self.values)
        call("cuMemcpyDtoH_v2", ctypes.c_void_p(values.ctypes.data), self.address, ctypes.c_size_t(values.nbytes))
        return values


class Arrays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert DRIVER.cuInit(0) == 0 and DRIVER.cuDevicePrimaryCtxRetain(ctypes.byref(CONTEXT), 0) == 0
        cls.model = sardonyx.Model(PATH, trust=True, device="cuda:0")
        cls.session = cls.model.session()
        cls.expected = sardonyx.Model(PATH, trust=True).session().run({"x": X})

    def refused(self, code, message, inputs, session=None, **arguments):
        with self.assertRaises(sardonyx.Error) as caught:
            (session or self.session).run(inputs, **arguments)
        self.assertEqual(caught.exception.code, code)
        self.assertIn(message, str(caught.exception))

    def test_inputs_and_outputs_stay_on_the_gpu(self):
        x, y = Array(X), Array(np.zeros(5, np.float32))
        found = self.session.run({"x": x}, out={"y": y})
        self.assertIs(found["y"], y)
        np.testing.assert_array_equal(y.numpy(), self.expected["y"])
        np.testing.assert_array_equal(found["z"], X)
        # Of the host and of the GPU, in one call.
        np.testing.assert_array_equal(self.session.run({"x": x})["y"], self.expected["y"])
        y = Array(np.zeros(5, np.float32), strides=(4,))
        self.session.run({"x": X}, out={"y": y})
        np.testing.assert_array_equal(y.numpy(), self.expected["y"])

    def test_an_array_may_be_larger_than_its_output(self):
        y = Array(np.full(9, 7, np.float32))
        self.assertIs(self.session.run({"x": Array(X)}, out={"y": y})["y"], y)
        np.testing.assert_array_equal(y.numpy(), [*self.expected["y"], 7, 7, 7, 7])
        empty = self.session.run({"x": Array(X, shape=(0, 8), data=(0, False))})
        self.assertEqual((empty["y"].shape, empty["z"].shape), ((0,), (0, 8)))

    def test_the_default_stream_is_waited_for_where_an_interface_names_none(self):
        found = self.session.run({"x": Array(X, version=2)})
        np.testing.assert_array_equal(found["y"], self.expected["y"])

    def test_a_call_waits_for_the_stream_that_an_array_names(self):
        # The stand-in driver does work only when it is waited for.
        own = stream()
        for session in [self.session, self.model.session(cuda_stream=own.value)]:
            x = Array(np.zeros_like(X), stream=own.value)
            values = ctypes.c_void_p(X.ctypes.data)
            call("cuMemcpyHtoDAsync_v2", x.address, values, ctypes.c_size_t(X.nbytes), own)
            np.testing.assert_array_equal(session.run({"x": x})["y"], self.expected["y"])

    def test_mistakes(self):
        x, y = Array(X), Array(np.zeros(5, np.float32))
        self.refused("E0301", "must be contiguous", {"x": Array(X, strides=(4, 20))})
        self.refused("E0301", "must be contiguous", {"x": Array(X, strides=(32,))})
        self.refused("E0301", "has the type >f4", {"x": Array(X, typestr=">f4")})
        self.refused("E0301", "has type", {"x": Array(X.astype(np.int32))})
        self.refused("E0301", "lacks `data`", {"x": Array(X, data=None)})
        self.refused("E0301", "has a mask", {"x": Array(X, mask=x)})
        self.refused("E0301", "is at no address", {"x": Array(X, data=(0, False))})
        self.refused("E0301", "must be writeable", {"x": x}, out={"y": Array(X[0], data=(y.address.value, True))})
        self.refused("E0301", "must be in the memory of the GPU", {"x": x}, out={"y": np.zeros(5, np.float32)})
        self.refused("E0301", "`out` has no array for `y`", {"x": x}, out={"y": 7})
        self.refused("E0301", "its buffer only 16", {"x": x}, out={"y": Array(np.zeros(4, np.float32))})
        self.refused("E0301", "overlaps that of `x`", {"x": x}, out={"y": x})
        cpu = sardonyx.Model(PATH, trust=True)
        self.refused("E0301", "the model runs on 1 x `cpu`", {"x": x}, cpu.session())
        with self.assertRaises(sardonyx.Error) as caught:
            self.model.pool(sessions=1).submit({"x": x})
        self.assertIn("is for `Session.run`", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
