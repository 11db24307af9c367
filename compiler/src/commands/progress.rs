//! the current stage  =>  a progress line on a terminal, shown once a compilation takes long

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Compilations that finish sooner show no progress.
const DELAY: Duration = Duration::from_secs(1);

/// Shows the latest stage from its own thread, since a long stage does not report meanwhile. Dropping it clears the
/// line.
pub struct Progress {
    /// Channel to the thread that shows the stages, and the thread; `None` if nothing is to be shown.
    running: Option<(Sender<&'static str>, JoinHandle<()>)>,
}

impl Progress {
    /// Shows progress on standard error if that is a terminal.
    pub fn on_terminal() -> Progress {
        match std::io::stderr().is_terminal() {
            true => Progress::start(std::io::stderr(), DELAY),
            false => Progress::none(),
        }
    }

    /// Returns a progress that shows nothing.
    pub fn none() -> Progress {
        Progress { running: None }
    }

    fn start(out: impl Write + Send + 'static, delay: Duration) -> Progress {
        let (sender, receiver) = channel();
        // If no thread can be started, only the progress line is missing.
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || run(out, &receiver, delay));
        Progress { running: thread.ok().map(|thread| (sender, thread)) }
    }

    /// Announces the stage that begins; the line appears once a second has passed since the start.
    pub fn show(&self, stage: &'static str) {
        if let Some((sender, _)) = &self.running {
            // The thread runs until the sender is dropped.
            let _ = sender.send(stage);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.running.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

fn run(mut out: impl Write, stages: &Receiver<&'static str>, delay: Duration) {
    let start = Instant::now();
    let (mut current, mut shown) = ("", false);
    loop {
        let wait = if shown { Duration::MAX } else { delay.saturating_sub(start.elapsed()) };
        match stages.recv_timeout(wait) {
            Ok(stage) => current = stage,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if start.elapsed() >= delay {
            // Errors of writing to the terminal do not matter.
            let _ = write!(out, "\r\x1b[K{current} …").and_then(|()| out.flush());
            shown = true;
        }
    }
    if shown {
        let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Screen {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn what_is_over_soon_shows_nothing() {
        let screen = Screen::default();
        let progress = Progress::start(screen.clone(), Duration::from_secs(60));
        progress.show("read");
        progress.show("codegen");
        drop(progress);
        assert_eq!(screen.text(), "");
    }

    #[test]
    fn a_long_stage_is_shown_while_it_runs_and_cleared_at_the_end() {
        let screen = Screen::default();
        let progress = Progress::start(screen.clone(), Duration::from_millis(20));
        progress.show("read");
        while screen.text().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(screen.text(), "\r\x1b[Kread …");
        progress.show("codegen");
        drop(progress);
        assert_eq!(screen.text(), "\r\x1b[Kread …\r\x1b[Kcodegen …\r\x1b[K");
    }
}
