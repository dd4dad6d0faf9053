//! Asks the admin interface, over and over, for what is shown now.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::sample::Answer;
use super::state::PageRequest;
use crate::admin_client::{AdminClient, AdminError};

/// What came, of which question, and when.
type Came = (PageRequest, Result<Answer, String>, Duration);

/// Asks on a thread of its own.
#[derive(Debug)]
pub(super) struct Fetcher {
    wanted: Arc<Mutex<Option<PageRequest>>>,
    /// Wakes it for another question.
    wake: Sender<()>,
    came: Receiver<Came>,
}

impl Fetcher {
    /// Asks every `interval`, and at once when something else is wanted.
    pub(super) fn start(mut client: AdminClient, interval: Duration) -> io::Result<Self> {
        let wanted = Arc::new(Mutex::new(None::<PageRequest>));
        let (wake, woken) = mpsc::channel();
        let (sender, came) = mpsc::channel();
        let asked = Arc::clone(&wanted);
        thread::Builder::new().name("strait-top".to_owned()).spawn(move || {
            loop {
                let question = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some(question) = question {
                    let answer = ask(&mut client, &question).map_err(|error| error.to_string());
                    if sender.send((question, answer, now())).is_err() {
                        return;
                    }
                }
                match woken.recv_timeout(interval) {
                    // Several changes are one question.
                    Ok(()) => while woken.try_recv().is_ok() {},
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        Ok(Self { wanted, wake, came })
    }

    /// Says what is wanted from now on.
    pub(super) fn want(&self, question: &PageRequest) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.as_ref() != Some(question) {
            *wanted = Some(question.clone());
            // Without a thread nothing comes.
            let _ = self.wake.send(());
        }
    }

    /// What came since.
    pub(super) fn answer(&self) -> Option<Came> {
        self.came.try_recv().ok()
    }
}

/// Where it says how much memory it has, and how much it may have.
const MEMORY_PATH: &str = "/stats?filter=_memory_";

/// What a process answers to a question.
pub(super) fn ask(client: &mut AdminClient, question: &PageRequest) -> Result<Answer, AdminError> {
    let state = client.get_any("/ready?verbose")?;
    let memory = client.get(MEMORY_PATH)?;
    let body = client.get(&question.path)?;
    let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
    Ok(Answer { state: text(&state), memory: text(&memory), body })
}

/// A time that only grows.
#[expect(clippy::disallowed_methods, reason = "rates need the time between two looks")]
pub(super) fn now() -> Duration {
    use std::sync::LazyLock;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}
