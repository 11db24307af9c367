//! a listener  =>  HTTP/1 and HTTP/2 connections, which finish their current requests at shutdown

use crate::patience::Patient;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

/// Longest wait for the next request head on an HTTP/1 connection; interval of the pings on an idle HTTP/2 connection.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Longest time for the first bytes of a connection, and for the answer to an HTTP/2 ping.
const HEADERS_MAX: Duration = Duration::from_secs(10);
/// Maximum number of concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 128;

/// The first bytes of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI ";

/// Accepts connections until `ending` becomes true. Every connection holds a clone of `alive` until it is closed.
pub async fn accept(
    listener: TcpListener,
    router: Router,
    connections_max: usize,
    mut ending: watch::Receiver<bool>,
    alive: Arc<()>,
) {
    let slots = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ending.wait_for(|ends| *ends) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, ending, alive) = (router.clone(), ending.clone(), alive.clone());
                tokio::spawn(async move {
                    connection(stream, router, ending).await;
                    drop((slot, alive));
                });
            }
            // Either no file descriptors are left, which other connections may soon free, or the client has already
            // gone.
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Serves one connection. An error ends this connection only.
async fn connection(stream: TcpStream, router: Router, mut ending: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let begins = tokio::select! {
        begins = timeout(HEADERS_MAX, begins_as_http2(&stream)) => begins,
        _ = ending.wait_for(|ends| *ends) => return,
    };
    let Ok(Some(is_http2)) = begins else { return };
    let service = TowerToHyperService::new(router);
    let io = TokioIo::new(Patient::new(stream));
    let ends = async move {
        // `wait_for` cannot fail: the sender lives as long as the server.
        let _ = ending.wait_for(|ends| *ends).await;
    };
    let mut ends = pin!(ends);
    if is_http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
        builder.keep_alive_interval(IDLE_MAX).keep_alive_timeout(HEADERS_MAX);
        let mut connection = pin!(builder.serve_connection(io, service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = ends.as_mut() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(IDLE_MAX).max_buf_size(1 << 17);
        let mut connection = pin!(builder.serve_connection(io, service));
        tokio::select! {
            _ = connection.as_mut() => return,
            () = ends.as_mut() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

/// Returns whether the client speaks HTTP/2; `None` if the client disconnected before it sent anything.
async fn begins_as_http2(stream: &TcpStream) -> Option<bool> {
    let mut first = [0; PREFACE.len()];
    loop {
        match stream.peek(&mut first).await {
            Ok(0) | Err(_) => return None,
            Ok(n) if first[..n] != PREFACE[..n] => return Some(false),
            Ok(n) if n == PREFACE.len() => return Some(true),
            // Peeked bytes stay readable, so the prefix is read again after a short wait.
            Ok(_) => sleep(Duration::from_millis(1)).await,
        }
    }
}
