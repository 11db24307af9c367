//! two hosts, which are network namespaces of this machine joined by a link of 1 Gbit/s  =>  the results of one host,
//! and on the link the number of bytes that the plan states

use super::{LAUNCHERS, artifact, program};
use sardonyx_tests::prepared::data_sets;
use sardonyx_tests::programs::Outcome;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

static ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// Serializes the creation of links: until a link is in the namespaces, its name is visible on the whole machine.
static LINK: Mutex<()> = Mutex::new(());

/// The two network namespaces, which exist as long as these processes do.
struct Hosts {
    holders: [Child; 2],
    folder: TempDir,
}

fn shell(text: &str) {
    let outcome = Outcome::run(Command::new("sh").args(["-ec", text]));
    assert_eq!(outcome.code, 0, "{text}: {}", outcome.stderr);
}

impl Hosts {
    fn new() -> Hosts {
        let holder = || Command::new("unshare").args(["-n", "-u", "-m", "sleep", "3600"]).spawn().expect("util-linux");
        let hosts = Hosts { holders: [holder(), holder()], folder: tempfile::tempdir().unwrap() };
        std::thread::sleep(Duration::from_millis(500));
        let [a, b] = [0, 1].map(|at| hosts.holders[at].id());
        let link = LINK.lock().unwrap_or_else(PoisonError::into_inner);
        shell("ip link del sdx0 2>/dev/null || true; ip link add sdx0 type veth peer name sdx1");
        shell(&format!("ip link set sdx0 netns {a}; ip link set sdx1 netns {b}"));
        drop(link);
        for (at, address) in ADDRESSES.iter().enumerate() {
            // Without a /sys of its own, a library sees the interfaces of the machine.
            hosts.shell(at, &format!("hostname sdx{at}; mount -t sysfs sysfs /sys; ip link set lo up"));
            hosts.shell(at, &format!("ip addr add {address}/24 dev sdx{at}; ip link set sdx{at} up"));
            hosts.shell(at, &format!("tc qdisc add dev sdx{at} root tbf rate 1gbit burst 256kb latency 50ms"));
        }
        let agent = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n\
             case $host in {}) at={a};; *) at={b};; esac\nexec nsenter -t $at -n -u -m -- sh -c \"$*\"\n",
            ADDRESSES[0]
        );
        std::fs::write(hosts.agent(), agent).unwrap();
        std::fs::set_permissions(hosts.agent(), PermissionsExt::from_mode(0o755)).unwrap();
        hosts
    }

    /// Program by which a launcher starts programs on the other host.
    fn agent(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    fn inside(&self, at: usize) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holders[at].id().to_string(), "-n", "-u", "-m", "--"]);
        command
    }

    fn shell(&self, at: usize, text: &str) {
        let outcome = Outcome::run(self.inside(at).args(["sh", "-ec", text]));
        assert_eq!(outcome.code, 0, "{text}: {}", outcome.stderr);
    }

    /// Bytes that the first host has sent and received.
    fn bytes(&self) -> [u64; 2] {
        ["tx_bytes", "rx_bytes"].map(|name| {
            let path = format!("/sys/class/net/sdx0/statistics/{name}");
            Outcome::run(self.inside(0).args(["cat", &path])).stdout.trim().parse().expect("a counter")
        })
    }

    /// Runs `sardonyx-run` with one rank on each host.
    fn run(&self, launcher: &str, arguments: &[&str]) -> Outcome {
        let mut command = self.inside(0);
        let (agent, both) = (self.agent(), ADDRESSES.join(","));
        let agent = agent.to_str().unwrap();
        match launcher.ends_with("openmpi") {
            true => {
                command.args(["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", launcher]);
                command.args(["--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self", "--mca", "pml", "ob1"]);
                for part in ["oob_tcp_if_include", "btl_tcp_if_include"] {
                    command.args(["--mca", part, "10.77.0.0/24"]);
                }
                command.args(["-H", &both]);
            }
            false => {
                command.args(["env", "UCX_TLS=tcp,self", launcher, "-launcher", "ssh", "-launcher-exec", agent]);
                command.args(["-hosts", &both]);
            }
        }
        Outcome::run(command.args(["-n", "2"]).arg(program("sardonyx-run")).args(arguments).args(["--threads", "1"]))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// Bytes that the first of two ranks sends and receives in a call, as `inspect` reports them.
fn inspected_bytes(path: &Path, sizes: &[&str]) -> [f64; 2] {
    let mut command = Command::new(program("sardonyx-run"));
    let shown = ["inspect", path.to_str().unwrap(), "--entry", "main", "--json"];
    let json = json(&Outcome::run(command.args(shown).args(sizes)));
    let call = &json["entry_points"][0]["call"];
    let bytes = |name: &str| call[name].as_f64().expect("ranks exchange");
    [bytes("exchanged_bytes") + bytes("inputs_bytes"), bytes("exchanged_bytes")]
}

fn json(outcome: &Outcome) -> Value {
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// Part of `cargo xtask test --suite ranks`.
#[test]
#[ignore = "namespaces: as root"]
fn two_hosts_give_the_same_and_exchange_what_the_plan_says() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = Hosts::new();
    for launcher in LAUNCHERS {
        for (name, sizes) in [
            ("skel_minilm_l6_ts11", &["--dim", "batch=1", "--dim", "seq=128"][..]),
            (
                "skel_llama_tiny_kv_ts17",
                &["--dim", "batch=1", "--dim", "seq=64", "--dim", "past=64", "--dim", "total=128"],
            ),
        ] {
            let path = artifact(folder.path(), name, 2);
            let path = path.to_str().unwrap();
            let sets = data_sets(name);
            let data: Vec<&str> = sets.iter().flat_map(|set| ["--data", set.to_str().unwrap()]).collect();
            let checked = hosts.run(launcher, &[&["check", path], &data[..]].concat());
            assert_eq!(checked.code, 0, "{name} under {launcher}: {}", checked.stderr);
            // Returns the bytes on the link and the number of calls of one run. A short and a long run are compared, so
            // that the bytes of their start and end cancel out.
            let calls = |seconds: &str| {
                let before = hosts.bytes();
                let bench = ["bench", path, "--no-selftest", "--json", "--min-time", seconds];
                let ran =
                    json(&hosts.run(launcher, &[&bench[..], &["--input", "input_ids=range:0..99"], sizes].concat()));
                let (after, times) = (hosts.bytes(), ran["calls"].as_f64().unwrap());
                ([0, 1].map(|way| (after[way] - before[way]) as f64), times)
            };
            let ((few, few_calls), (many, many_calls)) = (calls("0.1"), calls("3"));
            let wanted = inspected_bytes(Path::new(path), sizes);
            for (way, wanted) in wanted.into_iter().enumerate() {
                let each = (many[way] - few[way]) / (many_calls - few_calls);
                println!("{name} under {launcher}: {each:.0} bytes of a call on the wire, {wanted:.0} in the plan");
                assert!((each / wanted - 1.0).abs() < 0.03, "{each} is not {wanted} within 3 %");
            }
        }
    }
}

/// Part of `cargo xtask test --suite ranks`.
#[test]
#[ignore = "namespaces: as root"]
fn a_host_with_another_file_is_refused_and_one_that_dies_ends_all() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = Hosts::new();
    let name = "skel_llama_tiny_kv_ts17";
    let (path, other) = (artifact(folder.path(), name, 2), folder.path().join("other.sdx"));
    let bench = |seconds: &'static str| {
        let inputs = ["--input", "input_ids=range:0..99", "--dim", "batch=1", "--dim", "seq=4"];
        let sizes = ["--dim", "past=0", "--dim", "total=4"];
        let command = ["bench", path.to_str().unwrap(), "--no-selftest", "--min-time", seconds];
        [&command[..], &inputs, &sizes].concat()
    };
    let good = std::fs::read(&path).unwrap();
    let of_three = std::fs::read(artifact(folder.path(), name, 3)).unwrap();
    let another = std::fs::read(artifact(folder.path(), "skel_gpt2_tiny_kv_dyn18", 2)).unwrap();
    for launcher in LAUNCHERS {
        for (bytes, code) in [(&another[..], "E0407"), (&of_three[..], "E0407"), (&good[..good.len() / 2], "E04")] {
            std::fs::write(&other, bytes).unwrap();
            hosts.shell(1, &format!("mount --bind {} {}", other.display(), path.display()));
            let outcome = hosts.run(launcher, &bench("0.01"));
            hosts.shell(1, &format!("umount {}", path.display()));
            assert_ne!(outcome.code, 0, "{launcher}: {outcome:?}");
            assert!(outcome.stderr.contains(code), "{launcher} {code}: {}", outcome.stderr);
        }
        let next = hosts.run(launcher, &bench("0.01"));
        assert_eq!(next.code, 0, "{launcher}: {}", next.stderr);
        // The newest of the processes is the one on the other host.
        let killer = format!("sleep 5; pkill -9 -n -f '[b]ench {}'", path.display());
        let killer = Command::new("sh").args(["-c", &killer]).spawn();
        let begun = Instant::now();
        let outcome = hosts.run(launcher, &bench("60"));
        killer.unwrap().wait().unwrap();
        assert_ne!(outcome.code, 0, "{launcher}: {outcome:?}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{launcher}: {:?}", begun.elapsed());
    }
}
