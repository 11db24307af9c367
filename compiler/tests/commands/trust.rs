//! compile --sign, run --key and --pin: trusted artifacts run, all others are refused with code 2

use super::*;

/// A secret key as `openssl genpkey -algorithm ed25519` writes it, for these tests only.
const SECRET: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIOIJxTc7qL3tyJAPhJPh8y+KwXxL6DuDn6E2v1ETfKI4\n-----END PRIVATE KEY-----\n";
/// The matching public key as `openssl pkey -pubout` writes it.
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAL8c/i2fSqmeL75+O2dAZE3BqE96AiyDcgmNr/DVR3aA=\n-----END PUBLIC KEY-----\n";
const OTHER: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAa1RbEudmorwPxOf6dZtW2QDoTW3wA97B3x7vE4Ikul8=\n-----END PUBLIC KEY-----\n";

fn signed() -> Folder {
    let f = Folder::with(layer());
    for (name, text) in [("secret.pem", SECRET), ("public.pem", PUBLIC), ("other.pem", OTHER)] {
        std::fs::write(f.path(name), text).unwrap();
    }
    f.good(&["compile", "m.onnx", "--sign", "secret.pem"]);
    f.good(&["compile", "m.onnx", "-o", "plain.sdx"]);
    f
}

fn run(f: &Folder, artifact: &str, trust: &[&str]) -> (i32, String) {
    f.bad(&[&["run", artifact, "--input", "x=zeros"], trust].concat())
}

fn seal(f: &Folder, artifact: &str) -> String {
    f.json(&["inspect", artifact, "--json"])["seal"].as_str().unwrap().into()
}

#[test]
fn a_signature_says_who_made_the_artifact() {
    let f = signed();
    let shown = f.good(&["inspect", "m.sdx"]);
    let signer = f.json(&["inspect", "m.sdx", "--json"])["signer"].as_str().unwrap().to_string();
    assert!(shown.contains(&format!("\nsigned      by {signer}\n")) && signer.len() == 64, "{shown}");
    assert!(f.good(&["inspect", "plain.sdx"]).contains("\nsigned      by nobody\n"));
    for (artifact, trust) in [
        ("m.sdx", &["--key", "public.pem"][..]),
        ("m.sdx", &["--key", "other.pem", "--key", "public.pem", "--copy"]),
        ("m.sdx", &[]),
        ("plain.sdx", &["--key", "other.pem", "--pin", &seal(&f, "plain.sdx")]),
    ] {
        assert_eq!(run(&f, artifact, trust), (0, String::new()), "{artifact} {trust:?}");
    }
    let again = std::fs::read(f.path("m.sdx")).unwrap();
    f.good(&["compile", "m.onnx", "--sign", "secret.pem"]);
    assert_eq!(std::fs::read(f.path("m.sdx")).unwrap(), again);
}

#[test]
fn what_is_not_trusted_is_not_run() {
    let f = signed();
    let pin = seal(&f, "plain.sdx");
    for (artifact, trust, wanted) in [
        ("m.sdx", &["--key", "other.pem"][..], "and is trusted by its signature alone; it is signed by "),
        ("plain.sdx", &["--key", "public.pem"], "and is trusted by its signature alone; it is not signed"),
        ("m.sdx", &["--pin", &pin], "that is not the pinned one; it is signed by "),
        ("m.sdx", &["--pin", &pin, "--key", "other.pem"], "and neither is trusted; it is signed by "),
    ] {
        let (code, message) = run(&f, artifact, trust);
        assert!(code == 2 && message.starts_with("error[E0409]: the artifact has the seal "), "{message}");
        assert!(message.contains(wanted) && message.contains("help: compare what `sardonyx inspect`"), "{message}");
    }
    // A resealed file that carries the signature of another file after its seal.
    let (signed, plain) = (std::fs::read(f.path("m.sdx")).unwrap(), std::fs::read(f.path("plain.sdx")).unwrap());
    let mut moved = plain.clone();
    moved.extend(&signed[signed.len() - 202..]);
    let comment = plain.len() - 82 - 2;
    moved[comment..comment + 2].copy_from_slice(&(82u16 + 202).to_le_bytes());
    std::fs::write(f.path("moved.sdx"), &moved).unwrap();
    assert!(run(&f, "moved.sdx", &["--key", "public.pem"]).1.starts_with("error[E0401]"));
}

#[test]
fn keys_and_pins_that_are_none_are_mistakes() {
    let f = signed();
    for (args, wanted) in [
        (&["run", "m.sdx", "--pin", "12"][..], "\"12\" is not the seal of an artifact"),
        (&["run", "m.sdx", "--key", "secret.pem"], "\"-----BEGIN PRIVATE KEY-----"),
        (&["run", "m.sdx", "--key", "nowhere.pem"], "cannot read nowhere.pem"),
        (&["run", "m.sdx", "--key", "public.pem", "--verify", "lazy"], "stands for the weights too"),
        (&["compile", "m.onnx", "-o", "n.sdx", "--sign", "public.pem"], "the file has no secret key of Ed25519"),
        (&["compile", "m.onnx", "-o", "secret.pem", "--sign", "secret.pem"], "the key of --sign"),
    ] {
        let (code, message) = f.bad(args);
        assert!(code == 2 && message.contains(wanted) && message.contains("help: "), "{args:?}: {message}");
    }
    assert!(!f.path("n.sdx").exists());
    assert_eq!(std::fs::read_to_string(f.path("secret.pem")).unwrap(), SECRET);
}
