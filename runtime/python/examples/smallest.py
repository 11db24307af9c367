"""python smallest.py MODEL.sdx"""

import sys

import numpy as np
import sardonyx

session = sardonyx.Model(sys.argv[1], trust=True).session(threads=2)
ids = np.array([[101, 7592, 2088, 102]])
inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
try:
    for name, array in session.run(inputs, timeout=1.0).items():
        print(f"{name}: {array.shape} {array.flat[0]}")
except sardonyx.Error as error:
    print(f"{error.code}, {error.kind}: {error.help}")
