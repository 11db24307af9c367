//! arguments  =>  a server, from loading its models to its exit code

use crate::app::{App, router};
use crate::args::ServeArgs;
use crate::connections::accept;
use crate::metrics::Metrics;
use crate::registry::Registry;
use sardonyx_base::{Error, Result};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// Serves until a signal ends it. Returns the exit code: 0 if all accepted requests were answered, otherwise 1.
pub fn serve(args: &ServeArgs, out: &mut dyn Write) -> Result<i32> {
    args.limits.check()?;
    let metrics = Arc::<Metrics>::default();
    let registry = Registry::load(args, &metrics)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| Error::user("E0304", format!("cannot start the threads of the server: {e}")))?;
    let within = runtime.enter();
    let app = Arc::new(App::new(registry, metrics)?);
    drop(within);
    let code = runtime.block_on(run(args, app.clone(), out));
    #[cfg(feature = "otlp")]
    app.traces.iter().for_each(|traces| traces.end());
    // The shutdown does not wait for a model that is still being loaded.
    runtime.shutdown_background();
    code
}

async fn run(args: &ServeArgs, app: Arc<App>, out: &mut dyn Write) -> Result<i32> {
    // The handlers are registered before the server announces its address, because an earlier signal would kill the
    // process.
    let (mut ends, hangup) = (Ends::new()?, listen_for(SignalKind::hangup())?);
    let cannot = |e| {
        let error = Error::user("E0002", format!("cannot listen on {}: {e}", args.listen));
        error.help("choose another address with `--listen`; port 0 takes a free one")
    };
    let listener = TcpListener::bind(args.listen).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let names: Vec<String> = app.registry.models().keys().cloned().collect();
    let put = writeln!(out, "serving {} at http://{address}", names.join(", ")).and_then(|()| out.flush());
    put.map_err(|e| Error::user("E0002", format!("cannot write the output: {e}")))?;
    let (end, ending) = watch::channel(false);
    let alive = Arc::new(());
    let connections_max = args.limits.connections_max.get();
    let accepting = tokio::spawn(accept(listener, router(app.clone()), connections_max, ending, alive.clone()));
    let refreshing = tokio::spawn(refresh(app.clone(), hangup));
    ends.wait().await;
    refreshing.abort();
    app.end();
    // Sending fails only if no receiver is left, and then nothing has to be ended.
    let _ = end.send(true);
    let answered = drain(&alive, args.limits.drain, &mut ends).await;
    accepting.abort();
    Ok(if answered { 0 } else { 1 })
}

/// Interval at which the files of the models are checked for changes.
const REFRESH: Duration = Duration::from_secs(1);

/// Reloads models whose file was replaced or one of whose ranks failed: every `REFRESH`, and at once on SIGHUP, which
/// also loads new files.
async fn refresh(app: Arc<App>, mut hangup: Signal) {
    loop {
        let all = tokio::select! {
            _ = hangup.recv() => true,
            () = sleep(REFRESH) => false,
        };
        let app = app.clone();
        // If a model cannot be loaded, the server goes on with those that it has.
        let failed = tokio::task::spawn_blocking(move || app.registry.refresh(all)).await.unwrap_or_default();
        failed.iter().for_each(|error| log(error));
    }
}

/// Writes a line to the standard error output. Failing to write is ignored.
pub fn log(line: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Waits until no connection is left, `most` has passed, or another signal comes. Returns whether all requests were
/// answered.
async fn drain(alive: &Arc<()>, most: Duration, ends: &mut Ends) -> bool {
    let until = Instant::now() + most;
    // The accepting task, too, holds a clone of `alive`, until it has seen that the server ends.
    while Arc::strong_count(alive) > 1 {
        tokio::select! {
            () = sleep(Duration::from_millis(5)) => {}
            () = ends.wait() => return false,
        }
        if Instant::now() >= until {
            return false;
        }
    }
    true
}

fn listen_for(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|e| Error::user("E0304", format!("cannot wait for signals: {e}")))
}

/// The signals that shut a server down.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn new() -> Result<Ends> {
        // Catches SIGPIPE, which ends other commands: a server must survive clients that disconnect while it writes.
        let _ = listen_for(SignalKind::pipe())?;
        Ok(Ends { terminate: listen_for(SignalKind::terminate())?, interrupt: listen_for(SignalKind::interrupt())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
