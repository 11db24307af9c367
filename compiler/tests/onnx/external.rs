//! External data: tensors share one mapping at any offset, and files outside the model's folder are refused

use crate::build::*;
use prost::Message;
use sardonyx::onnx::proto::*;
use sardonyx::onnx::{Model, read_model};
use sardonyx_base::Result;
use std::fs;
use std::path::Path;

fn tensor(name: &str, entries: &[(&str, &str)]) -> TensorProto {
    let entry = |&(key, value): &(&str, &str)| StringStringEntryProto { key: key.into(), value: value.into() };
    TensorProto {
        name: name.into(),
        data_type: 1,
        dims: vec![2],
        data_location: 1,
        external_data: entries.iter().map(entry).collect(),
        ..Default::default()
    }
}

fn read_with(folder: &Path, initializer: Vec<TensorProto>) -> Result<Model> {
    let graph = GraphProto { initializer, ..graph("x", "y", vec![node("Relu", "x", "y")]) };
    let path = folder.join("model.onnx");
    fs::write(&path, model(graph).encode_to_vec()).unwrap();
    read_model(&path)
}

fn refused(folder: &Path, location: &str) -> String {
    let e = read_with(folder, vec![tensor("w", &[("location", location)])]).unwrap_err();
    assert_eq!((e.code, e.node.as_deref()), ("E0105", Some("w")), "{e}");
    assert!(e.help.is_some() && e.file.is_some() && e.message.contains("`w`"), "{e}");
    e.message
}

#[test]
fn tensors_share_one_mapping_at_any_offset() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    let mut bytes = vec![0u8; 3];
    [1.0f32, 2.0, 3.0, 4.0].iter().for_each(|v| bytes.extend_from_slice(&v.to_le_bytes()));
    fs::write(folder.path().join("sub/w.bin"), &bytes).unwrap();
    let a = tensor("a", &[("location", "sub/w.bin"), ("offset", "3"), ("length", "8"), ("checksum", "unused")]);
    let b = tensor("b", &[("location", "sub/w.bin"), ("offset", "11")]);
    let model = read_with(folder.path(), vec![a, b]).unwrap();
    let [a, b] = [0, 1].map(|i| model.graph.initializers[i].data.clone());
    assert_eq!((a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap()), (vec![1.0, 2.0], vec![3.0, 4.0]));
    assert_eq!(a.bytes().as_ptr() as usize + 8, b.bytes().as_ptr() as usize, "the file is mapped twice");
}

#[test]
fn short_files_and_wrong_lengths_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.bin"), [0; 10]).unwrap();
    fs::write(folder.path().join("empty.bin"), []).unwrap();
    let code = |entries: &[(&str, &str)]| read_with(folder.path(), vec![tensor("w", entries)]).unwrap_err().code;
    assert_eq!(code(&[("location", "w.bin"), ("offset", "3")]), "E0105");
    assert_eq!(code(&[("location", "w.bin"), ("offset", "18446744073709551615")]), "E0105");
    assert_eq!(code(&[("location", "w.bin"), ("offset", "-1")]), "E0105");
    assert_eq!(code(&[("location", "w.bin"), ("length", "4")]), "E0302");
    assert_eq!(code(&[("location", "empty.bin")]), "E0105");
    assert_eq!(code(&[]), "E0105");
    let message = refused(folder.path(), "empty.bin");
    assert_eq!(message, "initializer `w` lies at bytes 0 to 8 of `empty.bin`, which has only 0 bytes");
}

#[test]
fn nothing_outside_the_folder_is_read() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("model");
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(outer.path().join("secret"), [0; 8]).unwrap();
    fs::write(folder.join("w.bin"), [0; 8]).unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
    std::os::unix::fs::symlink(outer.path(), folder.join("up")).unwrap();
    std::os::unix::fs::symlink("w.bin", folder.join("alias")).unwrap();
    let absolute = outer.path().join("secret").display().to_string();
    for location in ["../secret", "sub/../../secret", "sub/../w.bin", &absolute, ".."] {
        assert!(refused(&folder, location).contains("lies outside"), "{location}");
    }
    for location in ["link", "up/secret"] {
        assert!(refused(&folder, location).contains("is a link to outside"), "{location}");
    }
    assert!(refused(&folder, "absent").contains("is missing"));
    assert!(refused(&folder, "nul\0byte").contains("is missing"));
    for location in ["w.bin", "./w.bin", "alias"] {
        assert!(read_with(&folder, vec![tensor("w", &[("location", location)])]).is_ok(), "{location}");
    }
}

#[test]
fn only_regular_files_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    // Opening a pipe that has no writer would block for ever.
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
    assert!(made.success());
    for location in ["folder", "socket", "pipe"] {
        assert!(refused(folder.path(), location).contains("is not a regular file"), "{location}");
    }
    let e = read_model(&folder.path().join("pipe")).unwrap_err();
    assert_eq!(e.code, "E0002");
}

#[test]
fn a_model_in_memory_has_no_external_data() {
    let initializer = vec![tensor("w", &[("location", "w.bin")])];
    let e = refusal(&model(GraphProto { initializer, ..graph("x", "y", vec![node("Relu", "x", "y")]) }));
    assert_eq!(e.code, "E0105");
}
