"""`cargo xtask test --suite embedding` runs these, with the paths below in the environment."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import sardonyx
from sardonyx import _native

PROGRAM = os.environ["SARDONYX_COMPILER"]
ENCODER = os.environ["SARDONYX_ENCODER"]
DECODER = os.environ["SARDONYX_DECODER"]
# The model that the encoder was compiled from.
ONNX = os.environ["SARDONYX_ONNX"]


def texts(batch=2, seq=16, seed=7):
    random = np.random.default_rng(seed)
    ids = random.integers(1000, 5000, (batch, seq), dtype=np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


class Models(unittest.TestCase):
    def test_a_model_says_what_it_takes(self):
        main = sardonyx.Model(ENCODER, trust=True).entry_points[0]
        self.assertEqual(main.name, "main")
        self.assertEqual([(p.name, p.dtype, p.dims) for p in main.inputs][0], ("input_ids", "i64", ["batch", "seq"]))
        self.assertEqual((main.outputs[0].dtype, main.outputs[0].dims), ("f32", ["batch", "seq", 384]))
        self.assertEqual([(s.name, s.hi, s.is_data) for s in main.symbols], [("batch", None, False), ("seq", 512, False)])

    def test_the_bytes_of_a_call_are_known_before(self):
        model = sardonyx.Model(ENCODER, trust=True, verify="lazy")
        call = model.call_bytes(batch=8, seq=128)
        self.assertEqual(call.outputs, 8 * 128 * 384 * 4)
        self.assertGreater(call.arena, 8 * 128 * 384 * 4)
        with self.assertRaises(sardonyx.Error) as caught:
            model.call_bytes(batch=8)
        self.assertEqual(caught.exception.code, "E0204")

    def test_bytes_are_as_good_as_a_file(self):
        with open(ENCODER, "rb") as file:
            model = sardonyx.Model(file.read(), trust=True)
        inputs = texts()
        expected = sardonyx.Model(ENCODER, trust=True).session().run(inputs)
        np.testing.assert_array_equal(model.session().run(inputs)["last_hidden_state"], expected["last_hidden_state"])


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = sardonyx.Model(ENCODER, trust=True, verify="lazy", selftest=False)
        cls.session = cls.model.session(threads=1)

    def test_results_are_those_of_the_command(self):
        inputs = texts()
        found = self.session.run(inputs)["last_hidden_state"]
        with tempfile.TemporaryDirectory() as folder:
            command = [PROGRAM, "run", ENCODER, "--output-dir", folder]
            for name, array in inputs.items():
                path = os.path.join(folder, name + ".npy")
                np.save(path, array)
                command += ["--input", f"{name}={path}"]
            subprocess.run(command, check=True, capture_output=True)
            expected = np.load(os.path.join(folder, "last_hidden_state.npy"))
        self.assertEqual(found.tobytes(), expected.tobytes())

    def test_inputs_are_read_where_they_lie(self):
        array = np.arange(24, dtype=np.float32).reshape(2, 12)
        self.assertEqual(_native._input_address(array), array.ctypes.data)
        # What is not contiguous is copied, as is another byte order.
        self.assertNotEqual(_native._input_address(array[:, ::2]), array.ctypes.data)
        self.assertNotEqual(_native._input_address(array.astype(">f4")), array.ctypes.data)

    def test_what_speaks_dlpack_is_read_where_it_lies(self):
        class Tensor:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **arguments):
                return self.array.__dlpack__(**arguments)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        array = np.arange(24, dtype=np.int64)
        self.assertEqual(_native._input_address(Tensor(array)), array.ctypes.data)
        inputs = texts()
        found = self.session.run({name: Tensor(array) for name, array in inputs.items()})["last_hidden_state"]
        np.testing.assert_array_equal(found, self.session.run(inputs)["last_hidden_state"])
        np.testing.assert_array_equal(np.from_dlpack(found), found)

    def test_outputs_lie_where_they_were_written(self):
        inputs = texts()
        own = self.session.run(inputs)["last_hidden_state"]
        self.assertEqual((own.ctypes.data % 64, own.flags.owndata, own.flags.writeable), (0, False, True))
        target = np.empty((2, 16, 384), np.float32)
        found = self.session.run(inputs, out={"last_hidden_state": target})["last_hidden_state"]
        self.assertEqual(found.ctypes.data, target.ctypes.data)
        np.testing.assert_array_equal(target, own)
        # More room than needed.
        large = np.full(100_000, 7, np.float32)
        found = self.session.run(inputs, out={"last_hidden_state": large})["last_hidden_state"]
        self.assertEqual((found.shape, found.ctypes.data, large[-1]), ((2, 16, 384), large.ctypes.data, 7))
        # It outlives the session.
        copy = own.copy()
        session = self.model.session()
        kept = session.run(inputs)["last_hidden_state"]
        del session
        np.testing.assert_array_equal(kept, copy)

    def test_targets_that_do_not_fit_are_refused(self):
        inputs = texts()
        for target in [np.empty(3, np.float32), np.empty((2, 16, 384), np.float64), np.empty((2, 32, 384), np.float32)[:, ::2]]:
            with self.assertRaises(sardonyx.Error) as caught:
                self.session.run(inputs, out={"last_hidden_state": target})
            self.assertEqual(caught.exception.code, "E0301")
        frozen = np.empty((2, 16, 384), np.float32)
        frozen.flags.writeable = False
        with self.assertRaisesRegex(sardonyx.Error, "writeable"):
            self.session.run(inputs, out={"last_hidden_state": frozen})
        with self.assertRaisesRegex(sardonyx.Error, "shares memory"):
            self.session.run(inputs, out={"last_hidden_state": inputs["input_ids"]})

    def test_only_what_is_asked_for_comes(self):
        self.assertEqual(self.session.run(texts(), []), {})
        with self.assertRaisesRegex(sardonyx.Error, "no output `z`"):
            self.session.run(texts(), ["z"])

    def test_errors_have_all_their_parts(self):
        inputs = texts()
        inputs["input_ids"] = inputs["input_ids"].astype(np.int32)
        with self.assertRaises(sardonyx.Error) as caught:
            self.session.run(inputs)
        e = caught.exception
        self.assertEqual((e.code, e.kind, e.exit_status, e.file), ("E0301", "input", 2, ENCODER))
        self.assertIn("has type i32, but i64 is expected", e.message)
        self.assertTrue(str(e).startswith("error[E0301]: ") and "\n  help: " in str(e) and e.help)
        with self.assertRaises(sardonyx.Error) as caught:
            sardonyx.Model("nowhere.sdx", trust=True)
        self.assertEqual((caught.exception.code, caught.exception.kind), ("E0002", "file"))
        with self.assertRaises(sardonyx.Error):
            sardonyx.Model(b"PK", trust=True)
        with self.assertRaises(TypeError):
            sardonyx.Model(7)
        with self.assertRaisesRegex(sardonyx.Error, "at most 1024"):
            self.model.session(threads=100_000)
        with self.assertRaisesRegex(sardonyx.Error, "no type of tensors"):
            self.session.run({"input_ids": np.zeros(2, "M8[s]")})

    def test_calls_end_in_time_and_when_they_are_cancelled(self):
        with self.assertRaises(sardonyx.Error) as caught:
            self.session.run(texts(), timeout=0.0)
        self.assertEqual(caught.exception.kind, "deadline")
        cancel = sardonyx.Cancel()
        cancel.set()
        with self.assertRaises(sardonyx.Error) as caught:
            self.session.run(texts(), cancel=cancel)
        self.assertEqual(caught.exception.kind, "cancelled")
        cancel.clear()
        self.session.run(texts(), cancel=cancel, timeout=60)

    def test_other_threads_go_on_during_a_call(self):
        inputs = texts(8, 256)
        done = threading.Event()

        def work():
            self.session.run(inputs)
            done.set()

        before = sys.getswitchinterval()
        # Nobody takes the lock from whoever holds it.
        sys.setswitchinterval(60)
        try:
            thread = threading.Thread(target=work)
            thread.start()
            turns = 0
            while not done.is_set():
                turns += 1
                time.sleep(0)
            thread.join()
        finally:
            sys.setswitchinterval(before)
        self.assertGreater(turns, 10)

    def test_two_sessions_run_at_once(self):
        sessions = [self.model.session() for _ in range(2)]
        inputs = texts(4, 64)
        expected = sessions[0].run(inputs)["last_hidden_state"]

        def seconds(sessions, calls=20):
            wrong = []

            def work(session):
                for _ in range(calls):
                    found = session.run(inputs)["last_hidden_state"]
                    if found.tobytes() != expected.tobytes():
                        wrong.append(1)

            begun = time.perf_counter()
            threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            self.assertEqual(wrong, [])
            return time.perf_counter() - begun

        one, two = seconds(sessions[:1]), seconds(sessions)
        print(f"two threads make {2 * one / two:.2f} times the calls of one")


class Pools(unittest.TestCase):
    def test_answers_are_those_of_a_session(self):
        model = sardonyx.Model(ENCODER, trust=True, verify="lazy", selftest=False)
        pool = model.pool(sessions=2)
        self.assertEqual(pool.sessions, 2)
        inputs = [texts(batch=1, seq=8 + i, seed=i) for i in range(24)]
        futures = [pool.submit(one) for one in inputs]
        for one in inputs:
            one["input_ids"][:] = 0  # They were copied.
        session = model.session()
        for i, future in enumerate(futures):
            expected = session.run(texts(batch=1, seq=8 + i, seed=i))["last_hidden_state"]
            np.testing.assert_array_equal(future.result(60)["last_hidden_state"], expected)
        self.assertEqual(pool.statistics()["served"], 24)
        self.assertGreater(pool.trim() + session.trim(), 0)

    def test_what_cannot_be_computed_says_why(self):
        pool = sardonyx.Model(ENCODER, trust=True, verify="lazy", selftest=False).pool(sessions=1, waiting_max=2)
        long, codes = texts(batch=4, seq=256), []
        futures = [pool.submit(long)]
        for _ in range(20):
            try:
                futures.append(pool.submit(long, timeout=1e-9))
            except sardonyx.Error as error:
                codes.append(error.code)
        self.assertEqual(set(codes), {"E0308"})
        self.assertEqual(futures[0].result(60)["last_hidden_state"].shape, (4, 256, 384))
        for future in futures[1:]:
            self.assertEqual(future.exception(60).code, "E0305")
        with self.assertRaises(sardonyx.Error) as caught:
            pool.submit({}).result(60)
        self.assertEqual(caught.exception.code, "E0301")
        pool.finish()
        with self.assertRaises(sardonyx.Error) as caught:
            pool.submit(long)
        self.assertEqual(caught.exception.code, "E0309")

    def test_an_event_loop_awaits_it(self):
        pool = sardonyx.Model(ENCODER, trust=True, verify="lazy", selftest=False).pool()

        async def several():
            return await asyncio.gather(*(asyncio.wrap_future(pool.submit(texts(seed=i))) for i in range(8)))

        self.assertEqual(len(asyncio.run(several())), 8)

    def test_a_pool_that_nobody_holds_answers_and_ends(self):
        future = sardonyx.Model(ENCODER, trust=True, verify="lazy", selftest=False).pool(sessions=1).submit(texts())
        try:
            self.assertIn("last_hidden_state", future.result(60))
        except sardonyx.Error as error:
            self.assertEqual(error.code, "E0309")

    def test_a_process_may_end_with_a_pool(self):
        program = (
            "import sardonyx, numpy as np, sys\n"
            "pool = sardonyx.Model(sys.argv[1], trust=True, verify='lazy').pool(sessions=1)\n"
            "ids = np.full((4, 128), 2000)\n"
            "inputs = {'input_ids': ids, 'attention_mask': ids * 0 + 1, 'token_type_ids': ids * 0}\n"
            "futures = [pool.submit(inputs) for _ in range(9)]\n"
        )
        subprocess.run([sys.executable, "-c", program, ENCODER], check=True, timeout=120)


class Caches(unittest.TestCase):
    def test_a_cache_continues_what_a_call_over_all_positions_computes(self):
        session = sardonyx.Model(DECODER, trust=True).session()
        ids = np.array([[1, 42, 7, 99]], np.int64)
        names = {p.name for p in session_entry(session).inputs if not p.is_state}
        output = next(p.name for p in session_entry(session).outputs if not p.is_state)

        def given(begin, end):
            feed = {"input_ids": ids[:, begin:end]}
            if "attention_mask" in names:
                feed["attention_mask"] = np.ones((1, end), np.int64)
            if "position_ids" in names:
                feed["position_ids"] = np.arange(begin, end, dtype=np.int64)[None]
            return feed

        whole, parts = session.cache(8, entry="prefill"), session.cache(8, entry="prefill")
        expected = session.run(given(0, 4), entry="prefill", cache=whole)[output]
        session.run(given(0, 3), entry="prefill", cache=parts)
        found = session.run(given(3, 4), entry="decode", cache=parts)[output]
        np.testing.assert_allclose(found[:, -1], expected[:, -1], rtol=1e-4, atol=1e-5)
        self.assertEqual((len(parts), parts.capacity), (4, 8))
        parts.truncate(1)
        self.assertEqual(len(parts), 1)
        with self.assertRaises(sardonyx.Error) as caught:
            session.run(given(0, 4), entry="prefill", cache=session.cache(2, entry="prefill"))
        self.assertEqual(caught.exception.kind, "cache-full")


def session_entry(_session):
    return next(e for e in sardonyx.Model(DECODER, trust=True).entry_points if e.name == "decode")


class Compat(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        os.environ["SARDONYX_CACHE"] = self.folder.name

    def tearDown(self):
        self.folder.cleanup()

    def test_a_model_is_compiled_once(self):
        import sardonyx.compat.onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(ONNX, options, providers=["CPUExecutionProvider"])
        artifacts = os.listdir(self.folder.name)
        self.assertEqual(len(artifacts), 1)
        made = os.stat(os.path.join(self.folder.name, artifacts[0])).st_mtime_ns
        self.assertEqual([i.name for i in session.get_inputs()], ["input_ids", "attention_mask", "token_type_ids"])
        self.assertEqual((session.get_inputs()[0].type, session.get_outputs()[0].type), ("tensor(int64)", "tensor(float)"))
        self.assertEqual(session.get_outputs()[0].shape[2], 384)
        self.assertEqual(session.get_providers(), ort.get_available_providers())
        self.assertIsInstance(session.get_modelmeta().custom_metadata_map, dict)
        inputs = texts()
        found = session.run(None, inputs)
        expected = sardonyx.Model(ENCODER, trust=True).session().run(inputs)["last_hidden_state"]
        self.assertEqual(found[0].tobytes(), expected.tobytes())
        # Lists get the type of the input.
        lists = {name: array.tolist() for name, array in inputs.items()}
        self.assertEqual(session.run(None, lists)[0].tobytes(), expected.tobytes())
        again = ort.InferenceSession(ONNX).run(["last_hidden_state"], inputs)[0]
        self.assertEqual(again.tobytes(), expected.tobytes())
        self.assertEqual(os.listdir(self.folder.name), artifacts)
        self.assertEqual(os.stat(os.path.join(self.folder.name, artifacts[0])).st_mtime_ns, made)
        # Other options are another artifact.
        fixed = ort.SessionOptions()
        fixed.add_free_dimension_override_by_name("batch", 2)
        ort.InferenceSession(ONNX, fixed).run(None, inputs)
        self.assertEqual(len(os.listdir(self.folder.name)), 2)

    def test_mistakes_have_the_names_that_are_expected(self):
        import sardonyx.compat.onnxruntime as ort

        with self.assertRaises(ort.NoSuchFile):
            ort.InferenceSession("nowhere.onnx")
        with self.assertRaises(ort.InvalidGraph):
            ort.InferenceSession(b"no model")
        with self.assertRaises(ort.InvalidArgument):
            ort.InferenceSession(ENCODER, providers=["CUDAExecutionProvider"])
        session = ort.InferenceSession(ENCODER)
        with self.assertRaisesRegex(ort.InvalidArgument, "the input `attention_mask` is missing"):
            session.run(None, {"input_ids": texts()["input_ids"]})
        with self.assertRaises(ort.InvalidArgument):
            session.run(["z"], texts())
        os.chmod(self.folder.name, 0o777)
        with self.assertRaisesRegex(ort.Fail, "others may write"):
            ort.InferenceSession(ONNX)

    def test_packages_find_it_by_the_other_name(self):
        import sardonyx.compat.onnxruntime as ort

        ort.install()
        try:
            import onnxruntime

            self.assertIs(onnxruntime.InferenceSession, ort.InferenceSession)
        finally:
            del sys.modules["onnxruntime"]


if __name__ == "__main__":
    unittest.main()
