//! dimensions by name, by expression or unknown  =>  bound, unified and checked, with errors that name both inputs

use crate::compiled::{Compiled, Inputs};
use sardonyx_base::DType::F32;
use sardonyx_base::{DType, Error, Tensor};
use sardonyx_tests::onnx::Net;
use sardonyx_tests::programs::{Outcome, program};
use std::process::Command;

/// f32 inputs of the given dimensions.
fn floats(dims: &[(&str, &[usize])]) -> Inputs {
    let one = |(i, (name, dims)): (usize, &(&str, &[usize]))| {
        let n = dims.iter().product::<usize>();
        let values: Vec<f32> = (0..n).map(|k| (k * 7 + i) as f32 % 5.0 - 1.5).collect();
        (name.to_string(), Tensor::from_vec(dims.to_vec(), values))
    };
    dims.iter().enumerate().map(one).collect()
}

fn two(a: &str, b: &str) -> Net {
    Net::new().input("a", F32, a).input("b", F32, b).output("y")
}

fn compiled(net: &Net, dims: &[&str]) -> Compiled {
    Compiled::compile_net(net, dims).unwrap_or_else(|e| panic!("{e}"))
}

fn refused(net: &Net, dims: &[&str]) -> Box<Error> {
    match Compiled::compile_net(net, dims) {
        Ok(_) => panic!("it compiles"),
        Err(e) => e,
    }
}

fn output(c: &Compiled, dims: &[(&str, &[usize])]) -> Vec<usize> {
    c.run(&floats(dims)).unwrap_or_else(|e| panic!("{e}"))[0].1.dims().to_vec()
}

fn message(c: &Compiled, dims: &[(&str, &[usize])]) -> String {
    let error = c.refusal(&floats(dims));
    assert_eq!(error.code, "E0301", "{error}");
    error.message.clone()
}

#[test]
fn elementwise_operands_share_their_dimensions() {
    let c = compiled(&two("s10 4", "s43 4").node("/add", "Add", "a b", "y"), &[]);
    let lines = ["symbol s10 in 0..: input `a`, dimension 0", "derived s43 = s10 in 0.., by /add"];
    assert_eq!(c.symbols(), lines);
    assert_eq!(output(&c, &[("a", &[3, 4]), ("b", &[3, 4])]), [3, 4]);
    let error = c.refusal(&floats(&[("a", &[3, 4]), ("b", &[5, 4])]));
    assert_eq!(error.message, "`s10` = 3 (input `a`, dimension 0), but also 5 (input `b`, dimension 0)");
    assert_eq!(error.remedy(), Some("give inputs whose dimensions agree: the node /add needs `s43` = `s10`"));
}

#[test]
fn contracted_dimensions_are_one() {
    let c = compiled(&two("m k1", "k2 n").node("/mm", "MatMul", "a b", "y"), &[]);
    assert_eq!(output(&c, &[("a", &[2, 3]), ("b", &[3, 4])]), [2, 4]);
    let words = "`k1` = 3 (input `a`, dimension 1), but also 2 (input `b`, dimension 0)";
    assert_eq!(message(&c, &[("a", &[2, 3]), ("b", &[2, 4])]), words);
}

#[test]
fn a_concatenation_adds_one_axis_and_unifies_the_others() {
    let c = compiled(&two("b s15 4", "c s70 4").node("/cat", "Concat", "a b", "y").int("axis", 1), &[]);
    assert!(c.symbols().contains(&"derived c = b in 0.., by /cat".to_string()), "{:?}", c.symbols());
    assert_eq!(output(&c, &[("a", &[2, 5, 4]), ("b", &[2, 3, 4])]), [2, 8, 4]);
    // An empty past, and an empty batch.
    assert_eq!(output(&c, &[("a", &[2, 0, 4]), ("b", &[2, 3, 4])]), [2, 3, 4]);
    assert_eq!(output(&c, &[("a", &[0, 5, 4]), ("b", &[0, 3, 4])]), [0, 8, 4]);
}

#[test]
fn a_reshape_is_an_equation() {
    let net = two("n 6", "m 4 3").node("/shape", "Shape", "b", "to").node("/r", "Reshape", "a to", "r");
    let c = compiled(&net.node("/add", "Add", "r b", "y"), &[]);
    assert!(c.symbols().contains(&"derived n = 2*m in 0.., by /r".to_string()), "{:?}", c.symbols());
    assert_eq!(output(&c, &[("a", &[6, 6]), ("b", &[3, 4, 3])]), [3, 4, 3]);
    let words = "dimension 0 of the input `a` is 5, but `2*m` = 6 is expected, where `m` = 3 (input `b`, dimension 0)";
    assert_eq!(message(&c, &[("a", &[5, 6]), ("b", &[3, 4, 3])]), words);
}

#[test]
fn factors_that_both_sides_of_an_equation_have_are_left_out() {
    let net = two("p s 4", "q s 4").node("/shape", "Shape", "b", "to").node("/r", "Reshape", "a to", "y");
    let c = compiled(&net, &[]);
    assert!(c.symbols().contains(&"derived q = p in 0.., by /r".to_string()), "{:?}", c.symbols());
    assert_eq!(output(&c, &[("a", &[2, 3, 4]), ("b", &[2, 3, 4])]), [2, 3, 4]);
}

#[test]
fn what_no_equation_solves_is_checked() {
    // Every second row of each operand: ceildiv(p, 2) = ceildiv(q, 2).
    let net = two("p 4", "q 4").i64s("zero", &[0]).i64s("end", &[i64::MAX]).i64s("two", &[2]);
    let net =
        net.node("/left", "Slice", "a zero end zero two", "l").node("/right", "Slice", "b zero end zero two", "r");
    let c = compiled(&net.node("/add", "Add", "l r", "y"), &[]);
    assert_eq!(output(&c, &[("a", &[3, 4]), ("b", &[4, 4])]), [2, 4]);
    let error = c.refusal(&floats(&[("a", &[3, 4]), ("b", &[6, 4])]));
    let words = "`((q + 1) floordiv (2))` = 3 must be equal to `((p + 1) floordiv (2))` = 2, where `p` = 3 (input `a`, \
                 dimension 0), `q` = 6 (input `b`, dimension 0)";
    assert_eq!((error.code, error.message.as_str()), ("E0301", words));
    assert_eq!(error.node.as_deref(), Some("/add"));
}

#[test]
fn every_unknown_is_its_own() {
    let dims = ["? ? 3", "-1 0 3"];
    for (a, b) in dims.iter().flat_map(|a| dims.iter().map(move |b| (a, b))) {
        let c = compiled(&two(a, b).node("/mul", "Mul", "a b", "y"), &[]);
        let symbols = c.symbols();
        let lines = ["symbol a_0 in 0..: input `a`, dimension 0", "derived b_1 = a_1 in 0.., by /mul"];
        assert!(lines.iter().all(|l| symbols.contains(&l.to_string())) && symbols.len() == 4, "{symbols:?}");
        assert_eq!(output(&c, &[("a", &[2, 5, 3]), ("b", &[2, 5, 3])]), [2, 5, 3]);
    }
}

#[test]
fn a_name_that_is_empty_is_unknown_and_never_one_that_is_taken() {
    use sardonyx::onnx::proto::{DimensionValue, type_proto::Value};
    let mut net = two("? 2", "a_0 2").node("/cat", "Concat", "a b", "y").int("axis", 0);
    let ty = net.graph().input[0].r#type.as_mut().unwrap();
    let Some(Value::TensorType(tensor)) = &mut ty.value else { panic!("a tensor") };
    tensor.shape.as_mut().unwrap().dim[0].value = Some(DimensionValue::DimParam(String::new()));
    let c = compiled(&net, &["a_0_=1..4"]);
    let lines = ["symbol a_0 in 0..: input `b`, dimension 0", "symbol a_0_ in 1..4: input `a`, dimension 0"];
    // Only the first two lines are compared: further lines are about the capacity of the state that continues `a`.
    assert_eq!(c.symbols()[..2], lines);
    assert_eq!(output(&c, &[("a", &[2, 2]), ("b", &[5, 2])]), [7, 2]);
}

#[test]
fn an_expression_is_solved_for_what_nothing_else_tells() {
    // The dimensions are past + seq and seq: `past` is solved for, and is the length of the output.
    let net = two("past+seq 2", "seq 2").node("/shape", "Shape", "b", "n").int("start", 0).int("end", 1);
    let net = net.i64s("end", &[i64::MAX]).i64s("axis", &[0]);
    let c = compiled(&net.node("/slice", "Slice", "a n end axis", "y"), &["past=0..4"]);
    let source = "symbol past in 0..4: input `a`, dimension 0, which is `past + seq`";
    assert!(c.symbols().contains(&source.to_string()), "{:?}", c.symbols());
    assert_eq!(output(&c, &[("a", &[5, 2]), ("b", &[3, 2])]), [2, 2]);
    assert_eq!(output(&c, &[("a", &[3, 2]), ("b", &[3, 2])]), [0, 2]);
    let words =
        "dimension 0 of the input `a`, where `seq` = 3 (input `b`, dimension 0): no `past` makes `past + seq` = 2";
    assert_eq!(message(&c, &[("a", &[2, 2]), ("b", &[3, 2])]), words);
    let words = "`past` = 5 (input `a`, dimension 0, which is `past + seq`) is outside 0..4";
    assert_eq!(message(&c, &[("a", &[8, 2]), ("b", &[3, 2])]), words);
}

#[test]
fn an_expression_of_unknowns_is_a_name() {
    let c = compiled(&two("max-length 2", "max-length 2").node("/add", "Add", "a b", "y"), &["max-length=1..9"]);
    let line = "symbol max-length in 1..9: input `a`, dimension 0";
    assert_eq!(c.symbols(), [line]);
    assert_eq!(output(&c, &[("a", &[2, 2]), ("b", &[2, 2])]), [2, 2]);
}

/// A model may use the names that the compiler gives to its own variables, parameters and coordinates.
#[test]
fn names_of_the_compilers_own_kind_are_names() {
    let run = |names: [&str; 3]| {
        let [m, k, n] = names;
        let net = Net::new().input("a", F32, &format!("{m} {k}")).input("b", F32, &format!("{k} {n}"));
        let net = net.node("/mm", "MatMul", "a b", "c").node("/softmax", "Softmax", "c", "d");
        let net = net.node("/turn", "Transpose", "d", "e").node("/sum", "ReduceSum", "e", "f").int("keepdims", 0);
        let c = compiled(&net.output("d").output("e").output("f"), &[&format!("{m}=1..64")]);
        let line = format!("symbol {m} in 1..64: input `a`, dimension 0");
        assert!(c.symbols().contains(&line), "{:?}", c.symbols());
        c.run(&floats(&[("a", &[5, 7]), ("b", &[7, 9])])).unwrap_or_else(|e| panic!("{names:?}: {e}"))
    };
    let plain = run(["rows", "inner", "columns"]);
    let own =
        [["%0", "$k", "p1"], ["p0", "%1", "$m"], ["$0", "p2", "%i"], ["k0", "b0", "rank"], ["%arg0", "grid", "b1"]];
    for names in own {
        for (own, (name, other)) in run(names).iter().zip(&plain) {
            assert_eq!((&own.0, own.1.dims(), own.1.bytes()), (name, other.dims(), other.bytes()), "{names:?}");
        }
    }
}

/// mask[total] + cat(past[past], new[seq]): the mask's length is the sum.
fn masked() -> Net {
    let net = Net::new().input("mask", F32, "total").input("past", F32, "past").input("new", F32, "seq");
    net.node("/cat", "Concat", "past new", "c").int("axis", 0).node("/add", "Add", "mask c", "y").output("y")
}

#[test]
fn the_range_of_a_sum_still_binds() {
    let c = compiled(&masked(), &["total=2..6"]);
    assert!(c.symbols().contains(&"derived total = past + seq in 2..6, by /add".to_string()), "{:?}", c.symbols());
    assert_eq!(output(&c, &[("mask", &[6]), ("past", &[4]), ("new", &[2])]), [6]);
    let values = "`past` = 5 (input `past`, dimension 0), `seq` = 2 (input `new`, dimension 0)";
    let words = format!("`total` = `past + seq` = 7 ({values}) is outside 2..6");
    assert_eq!(message(&c, &[("mask", &[7]), ("past", &[5]), ("new", &[2])]), words);
    let error = c.refusal(&floats(&[("mask", &[5]), ("past", &[4]), ("new", &[2])]));
    let values = "`past` = 4 (input `past`, dimension 0), `seq` = 2 (input `new`, dimension 0)";
    let words = format!("dimension 0 of the input `mask` is 5, but `past + seq` = 6 is expected, where {values}");
    assert_eq!(error.message, words);
    let help = "give inputs whose dimensions agree: the node /add needs `total` = `past + seq`";
    assert_eq!(error.remedy(), Some(help));
}

#[test]
fn the_range_of_a_name_that_is_gone_is_its_successors() {
    let net = two("s10 4", "s43 4").node("/add", "Add", "a b", "y");
    let c = compiled(&net, &["s43=1..3", "s10=2..8"]);
    assert!(c.symbols()[0].starts_with("symbol s10 in 2..3"), "{:?}", c.symbols());
    let error = c.refusal(&floats(&[("a", &[4, 4]), ("b", &[4, 4])]));
    let words = "`s10` = 4 (input `a`, dimension 0) is outside 2..3";
    assert_eq!(error.message, words);
    let help = "`s43` in 1..3 is the same dimension, by the node /add; `sardonyx compile --dim` sets the ranges";
    assert_eq!(error.remedy(), Some(help));
}

#[test]
fn ranges_that_exclude_each_other_are_refused_at_compile_time() {
    let net = two("s10 4", "s43 4").node("/add", "Add", "a b", "y");
    let error = refused(&net, &["s10=1..2", "s43=5..8"]);
    let words = "the dimensions s43, in 5..8, and s10, in 1..2, must be equal";
    assert_eq!((error.code, error.message.as_str(), error.node.as_deref()), ("E0204", words, Some("/add")));
    let error = refused(&two("s10 4", "7 4").node("/add", "Add", "a b", "y"), &["s10=1..2"]);
    assert_eq!(error.message, "the dimension s10, in 1..2, must be 7");
    let error = refused(&net, &["s43=1..2", "other=3"]);
    assert_eq!(error.message, "the model has no dimension symbol `other`");
    assert_eq!(error.remedy(), Some("its symbols are s10, s43"));
}

#[test]
fn the_commands_take_every_name() {
    let c = compiled(&masked(), &[]);
    let run = |args: &str| {
        let mut command = Command::new(program("sardonyx-run"));
        let inputs = ["mask", "past", "new"].map(|name| format!("--input={name}=zeros"));
        Outcome::run(command.arg("run").arg(c.artifact()).args(inputs).args(args.split_whitespace()))
    };
    let outcome = run("--dim total=5 --dim seq=2");
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(outcome.stdout.contains("f32 [5]"), "{}", outcome.stdout);
    let outcome = run("--dim total=5 --dim seq=6");
    assert_eq!(outcome.code, 2);
    let words = "error[E0301]: `--dim total=5`: no `past` makes `past + seq` = 5";
    assert!(outcome.stderr.starts_with(words), "{}", outcome.stderr);
    let outcome = run("--dim total=5 --dim seq=3 --dim past=3");
    assert_eq!(outcome.code, 2);
    let words = "error[E0301]: `--dim total=5`, but what else is given makes `past + seq` = 6";
    assert!(outcome.stderr.starts_with(words), "{}", outcome.stderr);
}

#[test]
fn an_index_that_counts_demands_a_dimension() {
    // Looks up the rows 0 to n - 1 of `table`, where n is the number of rows of `a`.
    let net = Net::new().input("a", F32, "n 3").input("table", F32, "rows 3");
    let net = net.node("/shape", "Shape", "a", "n").int("start", 0).int("end", 1).i64s("axis", &[0]);
    let net = net.node("/squeeze", "Squeeze", "n axis", "limit");
    let scalar = |net: Net, name: &str, value: i64| {
        let mut net = net.i64s(name, &[value]);
        net.graph().initializer.last_mut().unwrap().dims.clear();
        net
    };
    let net = scalar(scalar(net, "zero", 0), "one", 1).node("/range", "Range", "zero limit one", "i");
    let net = net.node("/rows", "Gather", "table i", "t").node("/add", "Add", "a t", "y").output("y");
    let c = compiled(&net, &[]);
    assert!(c.symbols().contains(&"check n <= rows (/rows)".to_string()), "{:?}", c.symbols());
    assert_eq!(output(&c, &[("a", &[2, 3]), ("table", &[5, 3])]), [2, 3]);
    let error = c.refusal(&floats(&[("a", &[6, 3]), ("table", &[5, 3])]));
    let values = "`n` = 6 (input `a`, dimension 0), `rows` = 5 (input `table`, dimension 0)";
    assert_eq!(error.message, format!("`rows` must be at least `n`, but is 5, where {values}"));
    assert_eq!((error.code, error.node.as_deref()), ("E0301", Some("/rows")));
}

#[test]
fn an_empty_batch_gives_empty_outputs() {
    let net = Net::new().input("x", F32, "batch 8").input("ids", DType::I64, "batch");
    let net = net.f32s("w", &[8, 24]).f32s("table", &[10, 24]).node("/mm", "MatMul", "x w", "a");
    let net = net.node("/lookup", "Gather", "table ids", "b").node("/add", "Add", "a b", "c");
    let net = net.node("/softmax", "Softmax", "c", "y").node("/sum", "ReduceSum", "c", "total").int("keepdims", 0);
    let c = compiled(&net.output("y").output("total"), &[]);
    let inputs = |batch: usize| {
        let ids = Tensor::from_vec(vec![batch], vec![1i64; batch]);
        [floats(&[("x", &[batch, 8])]), vec![("ids".to_string(), ids)]].concat()
    };
    for batch in [3, 0, 1] {
        let outputs = c.run(&inputs(batch)).unwrap();
        assert_eq!((outputs[0].1.dims(), outputs[1].1.dims()), (&[batch, 24][..], &[][..]));
    }
    // The sum over no elements.
    assert_eq!(c.run(&inputs(0)).unwrap()[1].1.to_vec::<f32>().unwrap(), [0.0]);
}

#[test]
fn an_equality_that_some_sizes_break_is_a_condition_of_the_call() {
    // One row followed by all rows of `a` but the first: n rows in total, if n is at least 1.
    let net = Net::new().input("a", F32, "n 4").output("y").f32s("row", &[1, 4]);
    let net = net.i64s("one", &[1]).i64s("end", &[i64::MAX]).i64s("zero", &[0]);
    let net = net.node("/slice", "Slice", "a one end zero", "t").node("/shift", "Concat", "row t", "s").int("axis", 0);
    let c = compiled(&net.node("/both", "Concat", "a s", "y").int("axis", 1), &[]);
    let lines = ["symbol n in 1..: input `a`, dimension 0", "check 1 <= n (/both)"];
    assert_eq!(c.symbols(), lines);
    assert_eq!(output(&c, &[("a", &[3, 4])]), [3, 8]);
    assert_eq!(output(&c, &[("a", &[1, 4])]), [1, 8]);
    let error = c.refusal(&floats(&[("a", &[0, 4])]));
    assert_eq!(error.message, "`n` = 0 (input `a`, dimension 0) is outside 1..");
    assert_eq!(error.node.as_deref(), Some("/both"));
}

#[test]
fn a_length_that_data_shapes_is_a_condition_of_the_call() {
    // One window for every 384 elements; the weights require 257 windows.
    let net = Net::new().input("a", F32, "a b 256").output("y").i64s("to", &[1, 1, -1]).f32s("w", &[257, 5]);
    let net = net.node("/r", "Reshape", "a to", "r").node("/pool", "MaxPool", "r", "p");
    let net = net.ints("kernel_shape", &[1]).ints("strides", &[384]).node("/mm", "MatMul", "p w", "y");
    let c = compiled(&net, &[]);
    assert_eq!(c.symbols()[2..], ["check ((256*a*b + 383) floordiv (384)) == 257 (/mm)"], "{:?}", c.symbols());
    assert_eq!(output(&c, &[("a", &[5, 77, 256])]), [1, 1, 5]);
    let words = "`((256*a*b + 383) floordiv (384))` = 256 must be equal to `257` = 257, \
                 where `a` = 2 (input `a`, dimension 0), `b` = 192 (input `a`, dimension 1)";
    assert_eq!(message(&c, &[("a", &[2, 192, 256])]), words);
}

#[test]
fn a_product_of_open_dimensions_is_a_condition_of_the_call() {
    let net = Net::new().input("a", F32, "n 3 h w").output("y").f32s("k", &[3 * 49, 5]);
    let net = net.node("/flatten", "Flatten", "a", "f").node("/gemm", "Gemm", "f k", "y");
    let c = compiled(&net, &[]);
    assert_eq!(c.symbols().last().unwrap(), "check 3*h*w == 147 (/gemm)");
    assert_eq!(output(&c, &[("a", &[2, 3, 7, 7])]), [2, 5]);
    assert_eq!(output(&c, &[("a", &[2, 3, 1, 49])]), [2, 5]);
    let words = "`3*h*w` = 144 must be equal to `147` = 147, \
                 where `h` = 6 (input `a`, dimension 2), `w` = 8 (input `a`, dimension 3)";
    assert_eq!(message(&c, &[("a", &[1, 3, 6, 8])]), words);
}

#[test]
fn what_no_size_makes_equal_is_refused() {
    let net = Net::new().input("a", F32, "n 3 h w").output("y").f32s("k", &[3 * 49 + 1, 5]);
    let net = net.node("/flatten", "Flatten", "a", "f").node("/gemm", "Gemm", "f k", "y");
    let error = refused(&net, &[]);
    assert_eq!((error.code, error.node.as_deref()), ("E0201", Some("/gemm")), "{error}");
    // Nodes contradict each other: `/gemm` needs h·w = 49, `/other` w = 5, and `/last` then 5 = 49.
    let net = Net::new().input("a", F32, "h w").output("y").output("z").f32s("k", &[49, 5]).f32s("l", &[5, 5]);
    let net = net.i64s("flat", &[1, -1]).node("/r", "Reshape", "a flat", "f").node("/gemm", "MatMul", "f k", "y");
    let error = refused(&net.node("/other", "MatMul", "a l", "t").node("/last", "MatMul", "t k", "z"), &[]);
    assert_eq!(error.code, "E0201", "{error}");
}
