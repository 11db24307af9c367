//! a change to an artifact for two ranks, with valid hashes  =>  the error that refuses it

use super::places::pair;
use prost::Message;
use sardonyx_base::plan::messages::{Constant, Copy, Host, Manifest, Plan, Step, Symbol, step::Action};
use sardonyx_base::{Error, Tensor};
use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::programs::compile;
use sardonyx_tests::sdx::Parts;
use sardonyx_tests::trust::trusted;

struct Change {
    manifest: Manifest,
    plan: Plan,
}

impl Change {
    fn exchange(&mut self) -> &mut Host {
        let steps = &mut self.plan.entries[0].body.as_mut().unwrap().steps;
        let hosts =
            steps.iter_mut().filter_map(|s| if let Some(Action::Host(h)) = &mut s.action { Some(h) } else { None });
        hosts.last().unwrap()
    }

    /// Splits the exchange into a begin and a wait. `between` gets the begin step and the buffers of the operand and
    /// the result, and returns the steps to insert between the two.
    fn begun(&mut self, between: fn(Step, [u32; 2]) -> Vec<Step>) {
        let steps = &mut self.plan.entries[0].body.as_mut().unwrap().steps;
        let at = steps.iter().rposition(|s| matches!(s.action, Some(Action::Host(_)))).unwrap();
        let Some(Action::Host(host)) = &steps[at].action else { unreachable!("a host step") };
        let half = |what: &str| {
            let host = Host { op: format!("{what} {}", host.op), ..host.clone() };
            Step { action: Some(Action::Host(host)) }
        };
        let buffers = [host.args[0].buffer, host.results[0].value.as_ref().unwrap().buffer];
        let (begin, wait) = (half("begin"), half("wait"));
        let between = between(begin.clone(), buffers);
        steps.splice(at..=at, [begin].into_iter().chain(between).chain([wait]));
    }

    fn split(&mut self) -> &mut Constant {
        self.plan.constants.iter_mut().find(|c| !c.parts.is_empty()).unwrap()
    }

    fn coordinate(&mut self) -> &mut Symbol {
        self.manifest.symbols.iter_mut().find(|s| s.name.starts_with("rank")).unwrap()
    }
}

fn copy(from: u32, to: u32) -> Step {
    Step { action: Some(Action::Copy(Copy { from, to })) }
}

type Row = (&'static str, &'static str, fn(&mut Change));

static ROWS: &[Row] = &[
    ("E0402", "the artifact needs \"telepathy\"", |c| c.manifest.needs.push("telepathy".into())),
    ("E0401", "the mesh has no axis for `rank0`", |c| c.manifest.mesh.clear()),
    ("E0401", "ranks", |c| c.manifest.mesh[0].size = 0),
    ("E0401", "a mesh of 1 axes and 5000 ranks", |c| c.manifest.mesh[0].size = 5000),
    ("E0401", "2 parts for 3 ranks", |c| c.manifest.mesh[0].size = 3),
    ("E0401", "`n` is no coordinate of a rank", |c| c.manifest.mesh[0].symbol = "n".into()),
    ("E0401", "is the coordinate along two axes", |c| c.manifest.mesh.push(c.manifest.mesh[0].clone())),
    ("E0401", "is no coordinate of a rank", |c| c.coordinate().kind = 1),
    ("E0401", "1 parts for 2 ranks", |c| drop(c.split().parts.pop())),
    ("E0401", "reach beyond the", |c| c.split().parts[1].bytes = 1 << 40),
    ("E0401", "is not a multiple of 64", |c| c.split().parts[1].offset += 4),
    ("E0401", "have another hash", |c| c.split().parts[1].blake3 = "00".into()),
    ("E0401", "have another hash", |c| c.split().parts[1].bytes -= 64),
    ("E0401", "along an axis that the mesh has not", |c| c.exchange().op = "AllReduce mesh=1 by=add".into()),
    ("E0401", "", |c| c.exchange().op = "AllReduce mesh=0 by=median".into()),
    ("E0401", "gives rank 0 of 2", |c| c.exchange().op = "AllGather mesh=0 dim=1".into()),
    ("E0401", "gives rank 0 of 2", |c| c.exchange().op = "ReduceScatter mesh=0 by=add dim=1".into()),
    ("E0401", "is not f32 with 2 dimensions", |c| c.exchange().op = "AllGather mesh=0 dim=2".into()),
    ("E0401", "(operands, bodies)", |c| c.exchange().args.clear()),
    ("E0401", "which is not the same for all", |c| c.exchange().args[0].dims[1] = "12 + rank0".into()),
    ("E0401", "gives rank 0 of 2", |c| c.exchange().results[0].value.as_mut().unwrap().dims[0] = "2*n".into()),
    ("E0401", "is an input or a constant, but is written", |c| {
        let input = c.plan.entries[0].inputs[0].buffer;
        c.exchange().results[0].value.as_mut().unwrap().buffer = input;
    }),
    ("E0401", "is waited for, and has not begun", |c| c.exchange().op = "wait AllReduce mesh=0 by=add".into()),
    ("E0401", "is used while a collective makes it", |c| c.exchange().op = format!("begin {}", c.exchange().op)),
    ("E0401", "is not waited for before `begin AllReduce", |c| c.begun(|begin, _| vec![begin])),
    ("E0401", "`begin AllReduce mesh=0 by=add` has begun, not `AllReduce mesh=0 by=max`", |c| {
        c.begun(|_, _| vec![]);
        c.exchange().op = "wait AllReduce mesh=0 by=max".into();
    }),
    ("E0401", "is used while a collective makes it", |c| c.begun(|_, [_, made]| vec![copy(made, made)])),
    ("E0401", "is written while other ranks read it", |c| c.begun(|_, [brought, _]| vec![copy(brought, brought)])),
    ("E0401", "is not waited for before `AllReduce", |c| {
        let whole = c.exchange().clone();
        c.begun(|_, _| vec![]);
        let steps = &mut c.plan.entries[0].body.as_mut().unwrap().steps;
        let at = steps.iter().rposition(|s| matches!(s.action, Some(Action::Host(_)))).unwrap();
        steps.insert(at, Step { action: Some(Action::Host(whole)) });
    }),
    ("E0401", "the symbol `rank9` is not declared", |c| c.exchange().args[0].dims[0] = "rank9".into()),
];

#[test]
fn a_plan_that_was_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (model, artifact) = (folder.path().join("m.onnx"), folder.path().join("m.sdx"));
    std::fs::write(&model, pair(2, &[("up", 1, 2), ("down", 0, 2)]).bytes()).unwrap();
    compile(&model, &artifact, &[]);
    let good = Parts::read(&std::fs::read(&artifact).unwrap());
    let load = |change: fn(&mut Change)| -> Result<Model, Box<Error>> {
        let mut parts = good.clone();
        let manifest = Manifest::decode(&parts.manifest[..]).unwrap();
        let mut all = Change { manifest, plan: Plan::decode(&parts.plan[..]).unwrap() };
        change(&mut all);
        (parts.manifest, parts.plan) = (all.manifest.encode_to_vec(), all.plan.encode_to_vec());
        parts.rehash();
        std::fs::write(&artifact, parts.archive()).unwrap();
        Model::load(&artifact, &trusted().selftest(false))
    };
    let session = load(|_| {}).unwrap().session(&SessionOptions::default()).unwrap();
    let x = Tensor::from_vec(vec![2, 12], vec![1f32; 24]);
    assert_eq!(session.run(&[("x", x)]).unwrap()[0].1.dims(), [2, 12]);
    let wrong = |row: &Row| match load(row.2) {
        Ok(_) => Some(format!("{}: not refused", row.1)),
        Err(e) if e.code == row.0 && e.message.contains(row.1) => None,
        Err(e) => Some(format!("{} {}: {e}", row.0, row.1)),
    };
    let found: Vec<String> = ROWS.iter().filter_map(wrong).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
