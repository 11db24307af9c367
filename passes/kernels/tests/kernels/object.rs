//! Shared objects and kernel definitions: reproducible builds, no imports, equal definitions of equal kernels

use crate::build::{Builder, layer_norm, plain, softmax};
use crate::harness::{Case, Library, levels, run};
use sardonyx_base::{DType, Tensor};
use sardonyx_kernels::codegen::{build_shared_object, text};
use sardonyx_kernels::{Level, lower};

#[test]
fn the_same_kernels_give_the_same_bytes() {
    let kernels = [softmax(&["b"], "n"), layer_norm("384", 384.0), plain("m", "384", "384")];
    let lowered: Vec<_> = kernels.iter().map(|k| lower(k).unwrap()).collect();
    let named: Vec<_> = lowered.iter().enumerate().map(|(i, d)| (format!("k{i}"), d)).collect();
    assert_eq!(build_shared_object(&named).unwrap(), build_shared_object(&named).unwrap());
}

#[test]
fn no_kernels_give_an_object_too() {
    Library::new(&build_shared_object(&[]).unwrap());
}

#[test]
fn sizes_are_parameters_so_that_equal_kernels_are_equal() {
    let (a, b) = (lower(&softmax(&["b", "s"], "n")).unwrap(), lower(&softmax(&["layer", "past"], "t + 1")).unwrap());
    assert_eq!(a.def, b.def);
    assert_eq!(b.params.iter().map(|p| p.to_string()).collect::<Vec<_>>(), ["layer*past", "t + 1"]);
    assert_ne!(a.def, lower(&softmax(&["b", "s"], "128")).unwrap().def);
}

#[test]
fn clearing_and_copying_loops_call_no_library() {
    // The linker rejects undefined symbols, such as memset and memcpy.
    let mut zeros = Builder::new(&["n"], &[]);
    let zero = zeros.constant(0.0, DType::F32);
    zeros.store(zero, &["n"], &["%0"]);
    let mut copy = Builder::new(&["n", "100000"], &[]);
    let x = copy.load(DType::U8, &["n", "100000"], &["%0", "%1"]);
    copy.store(x, &["n", "100000"], &["%0", "%1"]);
    let (zeros, copy) = (lower(&zeros.0).unwrap(), lower(&copy.0).unwrap());
    let object = build_shared_object(&[("zeros".into(), &zeros), ("copy".into(), &copy)]).unwrap();
    let library = Library::new(&object);
    for level in Level::common() {
        library.kernel("zeros", level);
        library.kernel("copy", level);
    }
}

#[test]
fn an_index_out_of_range_sets_the_status_and_reads_at_0() {
    let mut b = Builder::new(&["4", "20"], &[]);
    let i = b.load(DType::I64, &["4"], &["%0"]);
    let x = b.load(DType::F32, &["6", "20"], &[&format!("${i}"), "%1"]);
    b.store(x, &["4", "20"], &["%0", "%1"]);
    let mut lanes = Builder::new(&["20"], &[]);
    let i = lanes.load(DType::I64, &["20"], &["%0"]);
    let x = lanes.load(DType::F32, &["6"], &[&format!("${i}")]);
    lanes.store(x, &["20"], &["%0"]);
    for (kernel, n, good) in [(b.0, 4usize, 20usize), (lanes.0, 20, 1)] {
        let lowered = lower(&kernel).unwrap();
        let library = Library::new(&build_shared_object(&[("k".into(), &lowered)]).unwrap());
        for bad in [6i64, -1, i64::MAX, i64::MIN] {
            let mut indices = vec![2i64; n];
            indices[n / 2] = bad;
            let case = Case::new("bad", kernel.clone(), &[]).read(0, Tensor::from_vec(vec![n], indices));
            for level in levels() {
                let (bytes, status) = run(library.kernel("k", level), &lowered, &case, i64::MAX / 2);
                assert_eq!(status, 1, "{bad}");
                let at = n / 2 * good * 4;
                assert_eq!(bytes[0][at..at + good * 4], case.reads[1].bytes()[..good * 4]);
            }
        }
    }
}

#[test]
fn an_unsupported_type_is_an_error() {
    let mut b = Builder::new(&["4"], &[]);
    let x = b.load(DType::C64, &["4"], &["%0"]);
    b.store(x, &["4"], &["%0"]);
    let error = lower(&b.0).unwrap_err();
    assert_eq!(error.code, "E0107");
    assert_eq!(error.message, "no kernel computes with elements of type c64");
}

#[test]
fn the_text_of_a_kernel_can_be_shown() {
    let lowered = lower(&plain("m", "384", "384")).unwrap();
    let text = text(&[("k0".into(), &lowered)], Level::from_name("v4").unwrap());
    assert!(text.starts_with("llvm.func @k0_v4("));
    assert!(text.contains("math.fma"));
}
