//! bodies of requests, a rate, a seed  =>  latencies of accepted and of refused requests
//!
//! The latency of an accepted request begins when the request was due, even if it was sent later; that of a refused
//! request begins when it was sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A server, and the bodies of the requests, which are sent in rotation.
pub struct Load {
    pub address: SocketAddr,
    pub path: &'static str,
    pub bodies: Vec<String>,
}

/// Maximum number of requests in flight; further requests are sent late, and the delay counts as latency.
const CONNECTIONS: usize = 256;

/// Latencies in milliseconds, sorted.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<f64>);

impl Latencies {
    pub fn new(mut all: Vec<f64>) -> Latencies {
        all.sort_by(f64::total_cmp);
        Latencies(all)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the smallest latency that at least the fraction `share` of all latencies does not exceed; infinity if
    /// there are none.
    pub fn percentile(&self, share: f64) -> f64 {
        self.percentile_of(share, self.count())
    }

    /// Returns the percentile over `requests` requests; requests that are not in the list have infinite latency.
    fn percentile_of(&self, share: f64, requests: usize) -> f64 {
        let at = ((requests as f64 * share).ceil() as usize).max(1) - 1;
        self.0.get(at).copied().unwrap_or(f64::INFINITY)
    }
}

/// Results of the requests that were due within a period.
#[derive(Debug, Default)]
pub struct Served {
    /// Latencies of accepted requests, from the times at which they were due.
    accepted: Latencies,
    /// Latencies of refused requests, from the times at which they were sent.
    refused: Latencies,
    failed: usize,
    seconds: f64,
}

impl Served {
    /// Returns the number of accepted requests per second, over the time from the start to the last answer.
    pub fn rate(&self) -> f64 {
        self.accepted.count() as f64 / self.seconds
    }

    pub fn failed(&self) -> usize {
        self.failed
    }

    pub fn accepted(&self) -> &Latencies {
        &self.accepted
    }

    /// Returns the latencies of requests that were refused with status 429.
    pub fn refused(&self) -> &Latencies {
        &self.refused
    }

    /// Returns the percentile over all requests; refused and failed requests have infinite latency.
    pub fn percentile(&self, share: f64) -> f64 {
        self.accepted.percentile_of(share, self.accepted.count() + self.refused.count() + self.failed)
    }
}

/// A random number generator that gives the same numbers for the same seed on every machine.
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Seeded {
        Seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number, by xorshift64*.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 11) as usize) % n
    }

    /// Returns the seconds between two events of a Poisson process with `rate` events per second on average.
    fn gap(&mut self, rate: f64) -> f64 {
        let uniform = ((self.next() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        -uniform.ln() / rate
    }
}

/// Returns the times at which requests are due, counted from the start: the events of a Poisson process with `rate`
/// events per second on average, during `seconds` seconds.
fn moments(rate: f64, seconds: f64, seed: u64) -> Vec<Duration> {
    let mut random = Seeded::new(seed);
    let mut at = 0.0;
    let gaps = std::iter::from_fn(|| {
        at += random.gap(rate);
        (at < seconds).then(|| Duration::from_secs_f64(at))
    });
    gaps.collect()
}

impl Load {
    /// Sends `rate` requests per second on average, at random times that do not depend on answers, and waits for all
    /// answers.
    pub fn open(&self, rate: f64, seconds: f64, seed: u64) -> Served {
        let moments = moments(rate, seconds, seed);
        self.sent(CONNECTIONS.min(moments.len()), |i| moments.get(i).copied())
    }

    /// Sends requests for `seconds` seconds, on each connection as soon as its previous request is answered.
    pub fn closed(&self, connections: usize, seconds: f64) -> Served {
        let (began, is_over) = (Instant::now(), AtomicBool::new(false));
        self.sent(connections, |_| {
            let now = began.elapsed();
            is_over.fetch_or(now.as_secs_f64() > seconds, Ordering::Relaxed);
            (!is_over.load(Ordering::Relaxed)).then_some(now)
        })
    }

    fn sent(&self, connections: usize, moment: impl Fn(usize) -> Option<Duration> + Sync) -> Served {
        let (next, all) = (AtomicUsize::new(0), Mutex::new((vec![], vec![], 0)));
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..connections {
                scope.spawn(|| {
                    let mut connection = None;
                    let (mut accepted, mut refused, mut failed) = (vec![], vec![], 0);
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let Some(wanted) = moment(i) else { break };
                        std::thread::sleep(wanted.saturating_sub(began.elapsed()));
                        let sent = began.elapsed();
                        let answer = self.ask(&mut connection, &self.bodies[i % self.bodies.len()]);
                        let since = |then| began.elapsed().saturating_sub(then).as_secs_f64() * 1e3;
                        match answer {
                            Ok((200, _)) => accepted.push(since(wanted)),
                            Ok((429, _)) => refused.push(since(sent)),
                            Ok(_) | Err(_) => failed += 1,
                        }
                    }
                    let mut all = all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    all.0.extend(accepted);
                    all.1.extend(refused);
                    all.2 += failed;
                });
            }
        });
        let (accepted, refused, failed) = all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let seconds = began.elapsed().as_secs_f64();
        Served { accepted: Latencies::new(accepted), refused: Latencies::new(refused), failed, seconds }
    }

    /// Sends one request, over the kept connection or a new one. Returns status and body.
    pub fn ask(&self, kept: &mut Option<BufReader<TcpStream>>, body: &str) -> std::io::Result<(u16, Vec<u8>)> {
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(Duration::from_secs(60)))?;
                BufReader::new(stream)
            }
        };
        let (path, length) = (self.path, body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        connection.get_mut().write_all((head + body).as_bytes())?;
        let answer = answer(&mut connection)?;
        *kept = Some(connection);
        Ok(answer)
    }
}

/// Reads a response with a `Content-Length`. Returns status and body.
fn answer(connection: &mut BufReader<TcpStream>) -> std::io::Result<(u16, Vec<u8>)> {
    let malformed = || std::io::Error::other("the answer is malformed");
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(malformed)?;
    let mut length = None;
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            None if line.trim_end().is_empty() => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok(),
            _ => {}
        }
    }
    let mut body = vec![0; length.ok_or_else(malformed)?];
    connection.read_exact(&mut body)?;
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_as_many_as_the_rate_says() {
        let all = moments(100.0, 50.0, 1);
        assert!((4700..5300).contains(&all.len()), "{}", all.len());
        assert_eq!(all, moments(100.0, 50.0, 1));
        assert!(all.windows(2).all(|w| w[0] <= w[1]));
    }

    #[test]
    fn what_failed_is_later_than_any() {
        let accepted = Latencies::new((1..=98).map(f64::from).collect());
        let served = Served { accepted, refused: Latencies::new(vec![1.0]), failed: 1, seconds: 2.0 };
        assert_eq!((served.percentile(0.5), served.percentile(0.98), served.rate()), (50.0, 98.0, 49.0));
        assert_eq!((served.refused().count(), served.accepted().percentile(1.0)), (1, 98.0));
        assert!(served.percentile(0.99).is_infinite());
    }
}
