//! Schemas of ONNX models and of our artifacts, as far as the decoders know them, for structural mutations

use crate::wire::Kind::{Bytes, Fixed32, Fixed64, Message, Packed, Text, Varint};
use crate::wire::Schema;

pub static MODEL: Schema =
    Schema(&[(1, Varint), (2, Text), (3, Text), (7, Message(&GRAPH)), (8, Message(&OPSET)), (25, Message(&FUNCTION))]);
static OPSET: Schema = Schema(&[(1, Text), (2, Varint)]);
pub static GRAPH: Schema = Schema(&[
    (1, Message(&NODE)),
    (2, Text),
    (5, Message(&TENSOR)),
    (11, Message(&VALUE)),
    (12, Message(&VALUE)),
    (15, Message(&SPARSE)),
]);
pub static NODE: Schema =
    Schema(&[(1, Text), (2, Text), (3, Text), (4, Text), (5, Message(&ATTRIBUTE)), (7, Text), (8, Text)]);
static ATTRIBUTE: Schema = Schema(&[
    (1, Text),
    (2, Fixed32),
    (3, Varint),
    (4, Bytes),
    (5, Message(&TENSOR)),
    (6, Message(&GRAPH)),
    (7, Bytes),
    (8, Packed),
    (9, Bytes),
    (10, Message(&TENSOR)),
    (11, Message(&GRAPH)),
    (14, Message(&TYPE)),
    (15, Message(&TYPE)),
    (20, Varint),
    (21, Text),
    (22, Message(&SPARSE)),
    (23, Message(&SPARSE)),
]);
static TENSOR: Schema = Schema(&[
    (1, Packed),
    (2, Varint),
    (3, Message(&SEGMENT)),
    (4, Bytes),
    (5, Packed),
    (6, Bytes),
    (7, Packed),
    (8, Text),
    (9, Bytes),
    (10, Bytes),
    (11, Packed),
    (13, Message(&EXTERNAL)),
    (14, Varint),
]);
static SEGMENT: Schema = Schema(&[(1, Varint), (2, Varint)]);
static EXTERNAL: Schema = Schema(&[(1, Text), (2, Text)]);
static SPARSE: Schema = Schema(&[(1, Message(&TENSOR)), (2, Message(&TENSOR)), (3, Packed)]);
static FUNCTION: Schema = Schema(&[
    (1, Text),
    (4, Text),
    (5, Text),
    (6, Text),
    (7, Message(&NODE)),
    (9, Message(&OPSET)),
    (10, Text),
    (11, Message(&ATTRIBUTE)),
    (13, Text),
]);
static VALUE: Schema = Schema(&[(1, Text), (2, Message(&TYPE))]);
pub static TYPE: Schema = Schema(&[
    (1, Message(&TENSOR_TYPE)),
    (4, Message(&ELEMENT)),
    (5, Message(&MAP)),
    (8, Message(&TENSOR_TYPE)),
    (9, Message(&ELEMENT)),
]);
static TENSOR_TYPE: Schema = Schema(&[(1, Varint), (2, Message(&SHAPE))]);
static ELEMENT: Schema = Schema(&[(1, Message(&TYPE))]);
static MAP: Schema = Schema(&[(1, Varint), (2, Message(&TYPE))]);
static SHAPE: Schema = Schema(&[(1, Message(&DIMENSION))]);
static DIMENSION: Schema = Schema(&[(1, Varint), (2, Text)]);

pub static MANIFEST: Schema = Schema(&[
    (1, Varint),
    (2, Varint),
    (3, Text),
    (4, Text),
    (5, Text),
    (6, Message(&SYMBOL)),
    (7, Text),
    (8, Message(&FILE)),
    (9, Text),
    (10, Message(&DERIVED)),
]);
static DERIVED: Schema = Schema(&[(1, Text), (2, Text), (3, Varint), (4, Varint), (5, Text)]);
static SYMBOL: Schema = Schema(&[(1, Text), (2, Varint), (3, Varint), (4, Varint)]);
static FILE: Schema = Schema(&[(1, Text), (2, Varint), (3, Bytes)]);

pub static PLAN: Schema = Schema(&[(1, Message(&ENTRY)), (2, Message(&CONSTANT)), (3, Message(&KERNEL))]);
static ENTRY: Schema = Schema(&[
    (1, Text),
    (2, Message(&PORT)),
    (3, Message(&PORT)),
    (4, Message(&BUFFER)),
    (5, Message(&BLOCK)),
    (6, Text),
    (7, Message(&CHECK)),
    (8, Message(&STATE)),
]);
static STATE: Schema = Schema(&[(1, Varint), (2, Varint), (3, Varint), (4, Text), (5, Text)]);
static CHECK: Schema = Schema(&[(1, Text), (2, Text), (3, Text)]);
static PORT: Schema = Schema(&[(1, Text), (2, Varint), (3, Text), (4, Varint)]);
static BUFFER: Schema = Schema(&[(1, Text), (2, Varint), (3, Varint), (4, Varint), (5, Text)]);
static BLOCK: Schema = Schema(&[(1, Message(&STEP))]);
static STEP: Schema = Schema(&[(1, Message(&LAUNCH)), (2, Message(&COPY)), (3, Message(&BIND))]);
static LAUNCH: Schema = Schema(&[(1, Varint), (2, Packed), (3, Text), (4, Text), (5, Text), (6, Varint)]);
static COPY: Schema = Schema(&[(1, Varint), (2, Varint)]);
static BIND: Schema = Schema(&[(1, Text), (2, Varint)]);
static CONSTANT: Schema = Schema(&[(1, Text), (2, Varint), (3, Varint), (4, Varint), (5, Text)]);
static KERNEL: Schema = Schema(&[
    (1, Text),
    (2, Packed),
    (3, Varint),
    (4, Text),
    (5, Text),
    (20, Text),
    (21, Text),
    (22, Message(&KERNEL_TARGET)),
]);
static KERNEL_TARGET: Schema = Schema(&[(1, Text), (2, Text), (3, Varint), (4, Varint)]);

pub static SELFTEST: Schema = Schema(&[(1, Message(&CANARY)), (2, Message(&EXPECTED))]);
static CANARY: Schema = Schema(&[(1, Text), (2, Varint), (3, Packed), (4, Bytes)]);
static EXPECTED: Schema = Schema(&[(1, Message(&CANARY)), (2, Fixed64), (3, Fixed64)]);
