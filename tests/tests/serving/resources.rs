//! processor time and memory that serving takes, compared with the same calls without a server

use crate::common::Server;
use crate::{load, load_of_texts, minilm, serve, statistics, texts};
use sardonyx_base::Tensor;
use sardonyx_runtime::{Model, Session, SessionOptions};
use sardonyx_tests::trust::trusted;
use serde_json::{Value, json};
use std::time::Instant;

fn run(session: &Session, batch: &[Vec<u32>]) {
    let longest = batch.iter().map(Vec::len).max().unwrap_or(0);
    let dims = vec![batch.len(), longest];
    let padded = |of: &dyn Fn(u32) -> i64| {
        let row = |text: &Vec<u32>| {
            let mut row: Vec<i64> = text.iter().map(|id| of(*id)).collect();
            row.resize(longest, 0);
            row
        };
        Tensor::from_vec(dims.clone(), batch.iter().flat_map(row).collect())
    };
    let inputs =
        [("input_ids", padded(&i64::from)), ("attention_mask", padded(&|_| 1)), ("token_type_ids", padded(&|_| 0))];
    session.run(&inputs).unwrap_or_else(|e| panic!("{e}"));
}

fn count(stats: &Value, name: &str) -> f64 {
    stats[name].as_f64().unwrap()
}

/// Processor time that a process has used, in seconds.
fn cpu_seconds(process: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

#[test]
#[ignore = "the suite `serving`"]
fn serving_takes_little_more_than_the_calls() {
    let folder = tempfile::tempdir().unwrap();
    let path = minilm(folder.path());
    let began = Instant::now();
    let server = serve(&path, &["--threads", "2"]);
    let short = load(&server, [Value::from(texts()[0][..8].to_vec())]);
    assert_eq!(short.closed(1, 0.0).failed(), 0);
    let first = began.elapsed().as_secs_f64();

    let load_16 = load(&server, [Value::from((1000..1016).collect::<Vec<u32>>())]);
    let session = Model::load(&path, &trusted()).unwrap().session(&SessionOptions::default().threads(2)).unwrap();
    let text: Vec<Vec<u32>> = vec![(1000..1016).collect()];
    let mut direct = vec![];
    let mut served = vec![];
    for _ in 0..5 {
        served.push(load_16.closed(1, 1.0).accepted().percentile(0.5));
        let until = Instant::now() + std::time::Duration::from_secs(1);
        let mut own = vec![];
        while Instant::now() < until {
            let began = Instant::now();
            run(&session, &text);
            own.push(began.elapsed().as_secs_f64() * 1e3);
        }
        own.sort_by(f64::total_cmp);
        direct.push(own[own.len() / 2]);
    }
    direct.sort_by(f64::total_cmp);
    served.sort_by(f64::total_cmp);

    let all = load_of_texts(&server);
    all.closed(24, 3.0);
    let (stats, cpu) = (statistics(&server), cpu_seconds(&server.id().to_string()));
    let clients = all.closed(24, 20.0);
    assert_eq!(clients.failed(), 0);
    let (after, cpu) = (statistics(&server), cpu_seconds(&server.id().to_string()) - cpu);
    let rows = count(&after, "inference_count") - count(&stats, "inference_count");
    let batch = (rows / (count(&after, "execution_count") - count(&stats, "execution_count"))).round() as usize;
    // Runs the same number of texts, from the same set and in batches of the same size, without the server.
    let mut left = rows as usize;
    let own = cpu_seconds("self");
    for batch in texts().chunks(batch.max(1)).collect::<Vec<_>>().iter().cycle() {
        run(&session, batch);
        left = left.saturating_sub(batch.len());
        if left == 0 {
            break;
        }
    }
    let own = cpu_seconds("self") - own;
    println!(
        "first embedding {first:.3} s after the start; a text of 16 tokens {:.2} ms, {:.2} ms without a server; processors {:.2} \
         of what {rows} texts in batches of {batch} take without one; {:.1} MiB beside the weights",
        served[2],
        direct[2],
        cpu / own,
        beside_weights(&server) / (1 << 20) as f64,
    );
}

/// Resident memory of the process in bytes, without the artifact that it has mapped.
fn beside_weights(server: &Server) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps", server.id())).unwrap();
    let mut is_artifact = false;
    let mut total = 0.0;
    for line in text.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if !first.ends_with(':') {
            is_artifact = line.ends_with(".sdx");
        } else if first == "Rss:" && !is_artifact {
            total += line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0;
        }
    }
    total
}

#[test]
#[ignore = "the suite `serving`"]
fn minutes_of_all_shapes_take_no_more_memory_than_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&minilm(folder.path()), &[]);
    let texts = texts();
    let requests = (0..texts.len()).map(|i| json!(texts[i..(i + 1 + i % 5).min(texts.len())]));
    let load = load(&server, requests);
    let idle = || {
        std::thread::sleep(std::time::Duration::from_secs(1));
        (server.resident_bytes(), server.descriptors())
    };
    // Has more clients than the later loads, so that the largest batches already occur here.
    assert_eq!(load.closed(48, 60.0).failed(), 0);
    let (first, descriptors) = idle();
    let mut answered = 0;
    for minute in 2..=8 {
        let clients = load.closed(16, 60.0);
        assert_eq!(clients.failed(), 0);
        answered += clients.accepted().count();
        println!("minute {minute}: {:.1} MiB", server.resident_bytes() as f64 / (1 << 20) as f64);
    }
    let (last, open) = idle();
    println!("{answered} requests: {last} bytes, {:.4} of those after the first minute", last as f64 / first as f64);
    assert_eq!(open, descriptors);
    assert!(last as f64 <= 1.02 * first as f64, "{first} bytes became {last}");
}
