//! device configurations and plans  =>  the named tensors are split over ranks, with the results of one rank

use sardonyx::onnx::proto::*;
use sardonyx_base::DType::F32;
use sardonyx_base::Tensor;
use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::onnx::Net;
use sardonyx_tests::programs::{Outcome, program};
use sardonyx_tests::trust::trusted;
use std::path::Path;
use std::process::Command;

fn weights(name: &str, dims: [i64; 2]) -> TensorProto {
    let float_data = (0..dims[0] * dims[1]).map(|i| (i % 7) as f32 - 3.0).collect();
    TensorProto { name: name.into(), data_type: 1, dims: dims.to_vec(), float_data, ..TensorProto::default() }
}

/// x [n, 12] times two matrices with ReLU between them, and a configuration of `devices` devices that splits tensors:
/// (name, axis, shards).
pub fn pair(devices: i32, specs: &[(&str, i64, i64)]) -> Net {
    let mut net = Net::new().input("x", F32, "n 12");
    net.graph().initializer = vec![weights("up", [12, 18]), weights("down", [18, 12])];
    let mut net =
        net.node("first", "MatMul", "x up", "h").node("act", "Relu", "h", "r").node("second", "MatMul", "r down", "y");
    net = net.output("y");
    net.model.ir_version = 11;
    net.model.configuration = vec![DeviceConfigurationProto { name: "c".into(), num_devices: devices }];
    let spec = |(tensor, axis, shards): &(&str, i64, i64)| {
        let simple_sharding = vec![SimpleShardedDimProto { dim_value: None, num_shards: *shards }];
        let sharded_dim = vec![ShardedDimProto { axis: *axis, simple_sharding }];
        let device = (0..i64::from(devices)).collect();
        ShardingSpecProto { tensor_name: (*tensor).into(), device, sharded_dim }
    };
    for node in &mut net.graph().node {
        let own = specs.iter().filter(|(tensor, ..)| node.input.iter().chain(&node.output).any(|n| n == tensor));
        let sharding_spec: Vec<ShardingSpecProto> = own.map(spec).collect();
        if !sharding_spec.is_empty() {
            let configuration_id = "c".into();
            node.device_configurations =
                vec![NodeDeviceConfigurationProto { configuration_id, sharding_spec, pipeline_stage: None }];
        }
    }
    net
}

/// Compiles the model. Returns the exit code and what was printed.
pub fn compiled(folder: &Path, net: &Net, arguments: &[&str]) -> Outcome {
    let model = folder.join("m.onnx");
    std::fs::write(&model, net.bytes()).unwrap();
    let mut command = Command::new(program("sardonyx"));
    Outcome::run(command.arg("compile").arg(&model).arg("-o").arg(folder.join("m.sdx")).args(arguments))
}

fn computed(folder: &Path, ranks: usize) -> Vec<f32> {
    let options = trusted().ranks(ranks);
    let session = Model::load(folder.join("m.sdx"), &options).unwrap().session(&SessionOptions::default()).unwrap();
    let x = Tensor::from_vec(vec![5, 12], (0..60).map(|i| (i % 11) as f32 - 5.0).collect());
    session.run(&[("x", x)]).unwrap()[0].1.to_vec::<f32>().unwrap()
}

#[test]
fn a_model_with_a_device_configuration_runs_as_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let net = pair(3, &[("up", 1, 3), ("down", 0, 3)]);
    let one = compiled(folder.path(), &net, &["--ranks", "1"]);
    assert_eq!(one.code, 0, "{}", one.stderr);
    let wanted = computed(folder.path(), 1);
    let three = compiled(folder.path(), &net, &[]);
    assert_eq!(three.code, 0, "{}", three.stderr);
    // The ranks exchange data once, after the second product.
    assert_eq!(three.stdout.matches("host: AllReduce mesh=0 by=add").count(), 1, "{}", three.stdout);
    assert_eq!(three.stdout.matches("host: ").count(), 1, "{}", three.stdout);
    // Sums of small integers are exact in any order.
    assert_eq!(computed(folder.path(), 3), wanted);
    let outcome = compiled(folder.path(), &net, &["--ranks", "2"]);
    assert!(outcome.stderr.contains("error[E0108]: the ranks are [2], the plan or the model's configuration says [3]"));
}

#[test]
fn a_contradiction_names_its_node() {
    let folder = tempfile::tempdir().unwrap();
    for (specs, message) in [
        (vec![("up", 1, 2)], "`up` is split into 2 parts for 3 devices"),
        (vec![("up", 5, 3)], "input 1 has 2 dimensions, it cannot be split along 5"),
        (vec![("up", 1, 3), ("up", 0, 3)], "`up` is placed in two ways"),
    ] {
        let outcome = compiled(folder.path(), &pair(3, &specs), &[]);
        assert_eq!(outcome.code, 2, "{outcome:?}");
        let text = format!("error[E0108]: {message}");
        assert!(outcome.stderr.contains(&text) && outcome.stderr.contains("node first"), "{}", outcome.stderr);
    }
}

#[test]
fn a_plan_says_what_ranks_have() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = pair(2, &[]);
    net.model.configuration.clear();
    let plan = folder.path().join("plan.toml");
    let told = plan.to_str().unwrap().to_string();
    std::fs::write(&plan, "mesh = [2, 2]\n[[place]]\nnode = 'first'\noutput = 0\naxis = 1\ndim = -1\nunit = 3\n")
        .unwrap();
    assert_eq!(compiled(folder.path(), &net, &["--ranks", "1"]).code, 0);
    let wanted = computed(folder.path(), 1);
    let outcome = compiled(folder.path(), &net, &["--plan", &told]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(outcome.stdout.contains("host: AllReduce mesh=1 by=add"), "{}", outcome.stdout);
    assert_eq!(computed(folder.path(), 4), wanted);
    std::fs::write(&plan, "mesh = [2]\n[[place]]\nnode = 'third'\n").unwrap();
    let outcome = compiled(folder.path(), &net, &["--plan", &told]);
    assert!(outcome.stderr.contains("error[E0108]: no node has a name like `third`"), "{}", outcome.stderr);
}
