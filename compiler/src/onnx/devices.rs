//! device configurations (IR 11)  =>  the number of devices, and how the tensors of a node are split over them

use super::model::Placed;
use super::proto::{ModelProto, NodeProto, ShardedDimProto, ShardingSpecProto};
use sardonyx_base::{Error, Result};

/// Number of devices in the model's configuration; `None` if there is none. Errors: E0108 if there are several
/// configurations, or if the number is not between 1 and 1024.
pub fn devices(model: &ModelProto) -> Result<Option<i64>> {
    let [one] = &model.configuration[..] else {
        return match model.configuration.len() {
            0 => Ok(None),
            n => Err(Error::user("E0108", format!("the model has {n} device configurations"))
                .help("keep one of them, or none and compile with `--ranks N`")),
        };
    };
    match one.num_devices {
        n @ 1..=1024 => Ok(Some(i64::from(n))),
        n => Err(Error::user("E0108", format!("the device configuration `{}` has {n} devices", one.name))),
    }
}

/// How a node's tensors are distributed over the devices. Errors: E0108.
pub fn places(proto: &NodeProto, model: &ModelProto) -> Result<Vec<Placed>> {
    let mut placed = vec![];
    for of in &proto.device_configurations {
        let configuration = model.configuration.iter().find(|c| c.name == of.configuration_id);
        let unknown = || contradiction(format!("there is no device configuration `{}`", of.configuration_id));
        let devices = i64::from(configuration.ok_or_else(unknown)?.num_devices);
        if of.pipeline_stage.is_some_and(|stage| stage != 0) {
            return Err(contradiction("pipeline stages are not supported".into()));
        }
        for spec in &of.sharding_spec {
            let split = split(spec, devices)?;
            let at = |names: &[String]| names.iter().position(|name| *name == spec.tensor_name);
            let (input, index) = match (at(&proto.output), at(&proto.input)) {
                (Some(index), _) => (false, index),
                (None, Some(index)) => (true, index),
                (None, None) => {
                    return Err(contradiction(format!("`{}` is no tensor of the node", spec.tensor_name)));
                }
            };
            let one = Placed { input, index, axis: 0, split };
            if placed.iter().any(|known: &Placed| (known.input, known.index) == (input, index) && *known != one) {
                return Err(contradiction(format!("`{}` is placed in two ways", spec.tensor_name)));
            }
            placed.push(one);
        }
    }
    Ok(placed)
}

fn split(spec: &ShardingSpecProto, devices: i64) -> Result<Option<[i64; 3]>> {
    let name = &spec.tensor_name;
    let all: Vec<(&ShardedDimProto, usize)> = spec
        .sharded_dim
        .iter()
        .flat_map(|dim| (0..dim.simple_sharding.len()).map(move |i| (dim, i)))
        .filter(|(dim, i)| dim.simple_sharding[*i].num_shards > 1)
        .collect();
    let listed = spec.device.len() as i64;
    if listed > 0 && (listed != devices || !(0..devices).all(|d| spec.device.get(d as usize) == Some(&d))) {
        let message =
            format!("`{name}` is on the devices {:?}; all {devices} in their order are supported", spec.device);
        return Err(contradiction(message));
    }
    let (dim, i) = match all[..] {
        [] => return Ok(None),
        [one] => one,
        _ => return Err(contradiction(format!("`{name}` is split {} times; once is supported", all.len()))),
    };
    let factors = &dim.simple_sharding;
    let shards = factors[i].num_shards;
    if shards != devices {
        return Err(contradiction(format!("`{name}` is split into {shards} parts for {devices} devices")));
    }
    let product = |factors: &[super::proto::SimpleShardedDimProto]| {
        let mut sizes = factors.iter().map(|f| f.dim_value.filter(|n| *n > 0));
        sizes.try_fold(1i64, |all, n| all.checked_mul(n?))
    };
    let unknown = || contradiction(format!("`{name}` is split beside a factor of its dimension that is no number"));
    let (outer, unit) = (product(&factors[..i]).ok_or_else(unknown)?, product(&factors[i + 1..]).ok_or_else(unknown)?);
    Ok(Some([dim.axis, outer, unit]))
}

fn contradiction(message: String) -> Box<Error> {
    Error::user("E0108", message).help("correct the device configuration, or leave it out and compile with `--ranks N`")
}
