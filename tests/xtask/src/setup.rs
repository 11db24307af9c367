//! system requirements of a build  =>  the missing packages, installed with apt-get if possible

use crate::context::{Context, Failure, Result, output, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable by which the build finds LLVM and MLIR 22.
const PREFIX_VARIABLE: &str = "MLIR_SYS_220_PREFIX";
const PREFIX_DEFAULT: &str = "/usr/lib/llvm-22";

/// A Debian package, and a probe that tells whether its content is present, however it was installed.
struct SystemPackage {
    name: &'static str,
    probe: Probe,
}

enum Probe {
    /// A file under the LLVM prefix.
    Llvm(&'static str),
    /// A C header: in /usr/include, or in a package that dpkg reports as installed.
    Header(&'static str),
    /// A program on PATH.
    Program(&'static str),
}

impl SystemPackage {
    fn is_llvm(&self) -> bool {
        match self.probe {
            Probe::Llvm(_) => true,
            Probe::Header(_) | Probe::Program(_) => false,
        }
    }
}

/// Packages that a build and the tests need, sorted by name.
static PACKAGES: &[SystemPackage] = &[
    SystemPackage { name: "clang-22", probe: Probe::Llvm("bin/clang++") },
    SystemPackage { name: "g++", probe: Probe::Program("c++") },
    SystemPackage { name: "gcc", probe: Probe::Program("cc") },
    SystemPackage { name: "git", probe: Probe::Program("git") },
    SystemPackage { name: "libclang-22-dev", probe: Probe::Llvm("lib/libclang.so") },
    SystemPackage { name: "libmlir-22-dev", probe: Probe::Llvm("lib/libMLIRCAPIIR.a") },
    SystemPackage { name: "libpolly-22-dev", probe: Probe::Llvm("lib/libPolly.a") },
    SystemPackage { name: "libzstd-dev", probe: Probe::Header("zstd.h") },
    SystemPackage { name: "llvm-22-dev", probe: Probe::Llvm("lib/libLLVMCore.a") },
    SystemPackage { name: "llvm-22-tools", probe: Probe::Llvm("bin/FileCheck") },
    SystemPackage { name: "mlir-22-tools", probe: Probe::Llvm("bin/mlir-tblgen") },
    SystemPackage { name: "zlib1g-dev", probe: Probe::Header("zlib.h") },
];

/// `cargo xtask setup`: installs the missing system packages.
pub fn command(_: &Context, args: &[String]) -> Result<()> {
    match args.first() {
        Some(arg) => Err(Failure::user(format!("`setup` takes no argument, but `{arg}` is given"))),
        None => ensure(),
    }
}

/// Installs missing packages; uses no network if none is missing.
pub fn ensure() -> Result<()> {
    let prefix = llvm_prefix();
    let missing = missing(&prefix);
    if missing.is_empty() {
        println!("setup: LLVM and MLIR 22 under {} and all system packages are there", prefix.display());
        return Ok(());
    }
    if prefix != Path::new(PREFIX_DEFAULT) && PACKAGES.iter().any(|p| p.is_llvm() && missing.contains(&p.name)) {
        return Err(incomplete(&prefix, &missing));
    }
    println!("setup: installing {}", missing.join(" "));
    install(&missing)?;
    match self::missing(&prefix).as_slice() {
        [] => Ok(()),
        still => Err(incomplete(&prefix, still)),
    }
}

/// Returns the error for an incomplete prefix. Packages are installed in the default prefix only; another prefix is the
/// user's responsibility.
fn incomplete(prefix: &Path, missing: &[&str]) -> Box<Failure> {
    let message = format!("{} lacks what Debian has in these packages: {}", prefix.display(), missing.join(" "));
    Failure::user(message)
        .help(format!("unset {PREFIX_VARIABLE}, or let it name a folder with a complete LLVM and MLIR 22"))
}

/// Installs the MPI launchers, which the suites `ranks` and `serving` start.
pub fn ensure_launchers() -> Result<()> {
    ensure_programs(&[("mpirun.openmpi", "openmpi-bin"), ("mpirun.mpich", "mpich")])
}

/// Installs the packages of those programs that are not on PATH; only some `cargo xtask` commands need them.
fn ensure_programs(programs: &[(&str, &'static str)]) -> Result<()> {
    let missing: Vec<&str> =
        programs.iter().filter(|(program, _)| !on_path(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("setup: installing {}", missing.join(" "));
    install(&missing)
}

/// Installs valgrind and support for virtual environments, which the suite `embedding` needs.
pub fn ensure_embedding() -> Result<()> {
    ensure_programs(&[("valgrind", "valgrind")])?;
    ensure_venv()
}

/// Installs the tool that creates a Debian system in a folder.
pub fn ensure_bare_debian() -> Result<()> {
    ensure_programs(&[("mmdebstrap", "mmdebstrap")])
}

/// Installs support for Python's virtual environments.
pub fn ensure_venv() -> Result<()> {
    match output(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
        Some(_) => Ok(()),
        None => install(&["python3-venv"]),
    }
}

/// Installs pip, which is needed only for downloads, and so is not in `PACKAGES`.
pub fn ensure_pip() -> Result<()> {
    let works = || output(Command::new("python3").args(["-m", "pip", "--version"])).is_some();
    if works() {
        return Ok(());
    }
    println!("setup: installing python3-pip");
    install(&["python3-pip"])?;
    match works() {
        true => Ok(()),
        false => Err(Failure::user("`python3 -m pip` does not work, although python3-pip is installed")),
    }
}

/// Returns the folder in which LLVM and MLIR 22 are expected.
pub fn llvm_prefix() -> PathBuf {
    std::env::var_os(PREFIX_VARIABLE).unwrap_or_else(|| PREFIX_DEFAULT.into()).into()
}

fn missing(prefix: &Path) -> Vec<&'static str> {
    PACKAGES.iter().filter(|p| !present(p, prefix)).map(|p| p.name).collect()
}

fn present(package: &SystemPackage, prefix: &Path) -> bool {
    match package.probe {
        Probe::Llvm(file) => prefix.join(file).exists(),
        Probe::Header(file) => Path::new("/usr/include").join(file).exists() || known_to_dpkg(package.name),
        Probe::Program(name) => on_path(name),
    }
}

fn known_to_dpkg(package: &str) -> bool {
    let status = output(Command::new("dpkg-query").args(["-W", "-f=${Status}", package]));
    status.is_some_and(|s| s.ends_with("ok installed"))
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn install(packages: &[&str]) -> Result<()> {
    let os_release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !is_debian_like(&os_release) || !on_path("apt-get") {
        return Err(by_hand("this is neither Debian nor Ubuntu", packages));
    }
    run(apt_get()?.arg("update").args(["-q"]))?;
    let unknown: Vec<&str> = packages.iter().copied().filter(|p| !has_candidate(p)).collect();
    if !unknown.is_empty() {
        return Err(by_hand("apt-cache has no candidate for some packages", &unknown));
    }
    run(apt_get()?.args(["install", "-y", "-q", "--no-install-recommends"]).args(packages))
}

/// Returns a non-interactive call of apt-get as root, through sudo if needed.
fn apt_get() -> Result<Command> {
    let root = output(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0");
    let mut command = match root {
        true => Command::new("env"),
        false if on_path("sudo") => {
            let mut sudo = Command::new("sudo");
            sudo.arg("env");
            sudo
        }
        false => return Err(Failure::user("installing packages needs root, and there is no sudo here")),
    };
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "Acquire::Retries=3"]);
    Ok(command)
}

fn has_candidate(package: &str) -> bool {
    let policy = output(Command::new("apt-cache").env("LC_ALL", "C").args(["policy", package]));
    policy.is_some_and(|text| candidate(&text).is_some())
}

/// Returns the version that apt-get would install, given the output of `apt-cache policy`; `None` if there is none.
fn candidate(policy: &str) -> Option<&str> {
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate:"))?.trim();
    (version != "(none)").then_some(version)
}

fn is_debian_like(os_release: &str) -> bool {
    let fields = os_release.lines().filter_map(|line| line.strip_prefix("ID=").or(line.strip_prefix("ID_LIKE=")));
    fields.flat_map(|v| v.trim_matches('"').split(' ')).any(|id| id == "debian" || id == "ubuntu")
}

fn by_hand(why: &str, packages: &[&str]) -> Box<Failure> {
    let all: Vec<&str> = PACKAGES.iter().map(|p| p.name).collect();
    Failure::user(format!("{why}; these cannot be installed: {}", packages.join(" "))).help(format!(
        "install LLVM, MLIR, Clang and Polly of version 22 with development files (Debian calls them {}); \
         the project looks for them under {PREFIX_VARIABLE}, by default {PREFIX_DEFAULT}",
        all.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_sorted_and_unique() {
        assert!(PACKAGES.windows(2).all(|w| w[0].name < w[1].name));
    }

    #[test]
    fn a_prefix_without_llvm_misses_every_llvm_package() {
        let empty = tempfile::tempdir().unwrap();
        let missing = missing(empty.path());
        assert!(PACKAGES.iter().filter(|p| p.is_llvm()).all(|p| missing.contains(&p.name)), "{missing:?}");
    }

    #[test]
    fn a_prefix_with_a_probed_file_has_its_package() {
        let prefix = tempfile::tempdir().unwrap();
        std::fs::create_dir(prefix.path().join("bin")).unwrap();
        std::fs::write(prefix.path().join("bin/FileCheck"), "").unwrap();
        let missing = missing(prefix.path());
        assert!(!missing.contains(&"llvm-22-tools") && missing.contains(&"clang-22"));
    }

    #[test]
    fn an_incomplete_prefix_is_the_users_and_nothing_is_installed_for_it() {
        let failure = incomplete(Path::new("/opt/llvm"), &["llvm-22-tools"]);
        assert_eq!(failure.code, 2);
        assert!(
            failure
                .to_string()
                .starts_with("error: /opt/llvm lacks what Debian has in these packages: llvm-22-tools\n")
        );
    }

    #[test]
    fn distributions_are_told_apart() {
        assert!(is_debian_like("NAME=\"Debian GNU/Linux\"\nID=debian\n"));
        assert!(is_debian_like("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian_like("ID=fedora\nPRETTY_NAME=\"not debian\"\n"));
        assert!(!is_debian_like(""));
    }

    #[test]
    fn only_a_version_is_a_candidate() {
        assert_eq!(candidate("llvm-22-tools:\n  Installed: (none)\n  Candidate: 1:22.1.8-1\n"), Some("1:22.1.8-1"));
        assert_eq!(candidate("llvm-22-tools:\n  Installed: (none)\n  Candidate: (none)\n"), None);
        assert_eq!(candidate(""), None);
    }

    #[test]
    fn the_advice_names_packages_version_and_variable() {
        let failure = by_hand("this is neither Debian nor Ubuntu", &["llvm-22-tools"]);
        let text = failure.to_string();
        assert_eq!(failure.code, 2);
        assert!(text.contains("cannot be installed: llvm-22-tools") && text.contains("version 22"), "{text}");
        assert!(text.contains("MLIR_SYS_220_PREFIX") && text.contains("libmlir-22-dev"), "{text}");
    }
}
