//! arguments  =>  a server, from the loading of its models to its exit code

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

/// Serves until a signal ends it. Returns the exit code: 0 where everything accepted was answered, otherwise 1.
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
    // A model that is being loaded is not waited for.
    runtime.shutdown_background();
    code
}

async fn run(args: &ServeArgs, app: Arc<App>, out: &mut dyn Write) -> Result<i32> {
    // Before anyone is told that there is a server: an early signal would end it.
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
    // Whoever receives it lives as long as the server.
    let _ = end.send(true);
    let answered = drain(&alive, args.limits.drain, &mut ends).await;
    accepting.abort();
    Ok(if answered { 0 } else { 1 })
}

/// The time between two looks at the files of the models.
const REFRESH: Duration = Duration::from_secs(1);

/// Loads models whose files were replaced: soon after, and at SIGHUP at once.
async fn refresh(app: Arc<App>, mut hangup: Signal) {
    loop {
        let all = tokio::select! {
            _ = hangup.recv() => true,
            () = sleep(REFRESH) => false,
        };
        let app = app.clone();
        // A model that cannot be loaded leaves the server as it is.
        let failed = tokio::task::spawn_blocking(move || app.registry.refresh(all)).await.unwrap_or_default();
        failed.iter().for_each(|error| log(error));
    }
}

/// Writes a line for the operator. That nobody reads it is no reason to fail.
pub fn log(line: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Waits until no connection is left, the time is over, or another signal comes. Returns whether all requests were answered.
async fn drain(alive: &Arc<()>, most: Duration, ends: &mut Ends) -> bool {
    let until = Instant::now() + most;
    // The listener's task ends within the first round.
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

/// The signals that end a server.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn new() -> Result<Ends> {
        // A command ends when nobody reads its output; a server goes on when a client vanishes while it writes.
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
