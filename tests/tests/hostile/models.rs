//! a mutant of a model  =>  compiled, or refused with one diagnostic

use crate::corpus::{self, Base, Rough};
use crate::watch::Tally;
use crate::{Outcome, Subject};
use sardonyx::compile::{Request, compile};
use sardonyx_base::Fault;
use sardonyx_tests::damage::{Random, damaged};
use sardonyx_tests::schemas::MODEL;
use sardonyx_tests::wire::Tree;
use std::path::Path;

struct Models {
    bases: Vec<Base>,
    last: Vec<u8>,
}

pub fn open() -> Box<dyn Subject> {
    Box::new(Models { bases: corpus::bases(), last: vec![] })
}

/// Both outcomes must be common; otherwise the damage would test only one of them.
pub fn check(tally: &Tally) {
    let n = tally.total();
    let (compiled, refused) = (tally.count(|w| w == "compiled"), tally.count(|w| w.starts_with("refused")));
    assert!(compiled > n / 10 && refused > n / 4, "{compiled} compiled, {refused} refused, of {n}");
}

impl Subject for Models {
    fn attempt(&mut self, seed: u64) -> Outcome {
        let mut random = Random(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x0ddba11);
        let base = &self.bases[corpus::choose(self.bases.len(), &mut random)];
        self.last = mutant(&base.model, &mut random);
        let model = base.folder.path().join("model.onnx");
        let output = base.folder.path().join("out.sdx");
        std::fs::write(&model, &self.last).expect("a temporary folder takes a model");
        let _ = std::fs::remove_file(&output);
        let outcome = compile(&Request::new(&model, &output));
        match outcome {
            Ok(_) if output.is_file() => Outcome::Fine("compiled".into()),
            Ok(_) => Outcome::Fault("compiled, but nothing is there".into()),
            Err(e) if e.fault != Fault::User => Outcome::Fault(e.to_string()),
            Err(e) if e.remedy().is_none() || e.file.is_none() => Outcome::Fault(format!("no file or remedy: {e}")),
            Err(e) if output.exists() => Outcome::Fault(format!("refused, but written: {e}")),
            Err(e) => Outcome::Fine(format!("refused {}", e.code)),
        }
    }

    fn keep(&self, path: &Path) {
        std::fs::write(path, &self.last).expect("a temporary folder takes a mutant");
    }
}

fn mutant(good: &[u8], random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 | 1 => damaged(good, random),
        2 => {
            let mut tree = Tree::parse(&MODEL, good).expect("a good model has its schema");
            Rough::apply(&mut tree, random);
            tree.encode()
        }
        n => {
            let mut tree = Tree::parse(&MODEL, good).expect("a good model has its schema");
            for _ in 0..1 + random.below(3) {
                tree.mutate(random, corpus::WORDS, n > 5);
            }
            tree.encode()
        }
    }
}
