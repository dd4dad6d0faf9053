//! The floor of a changed endpoint: threads that are woken as a changed file of endpoints wakes Strait's, and do nothing.
//!
//! `wakes --folder PATH` watches a folder. Once a name in it is replaced and the folder was quiet for as long as Strait
//! waits, these wake each other, under the names of Strait's threads:
//!
//! ```text
//!  strait-watch ─► main thread ─► strait-builder ─► main thread ─► strait-worker-0 ─► main thread
//!  inotify         tokio          a channel          tokio         epoll, eventfd     tokio
//! ```
//!
//! Each has what Strait's has between two changes: control ticks ten times a second, a worker turns once. The
//! scenario `scale` measures both in turns (`xtask/src/bench/scale/live.rs`), by the times of the threads.

#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use ::io::{Events, Poller, Waker};
use bench::arguments::Arguments;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

/// As long as `strait-watch` waits for silence.
const QUIET: Duration = Duration::from_millis(100);

/// Between two ticks of control.
const TICK: Duration = Duration::from_millis(100);

/// Between two turns of a worker without events.
const TURN: Duration = Duration::from_secs(1);

fn main() -> io::Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1), &["folder"])?;
    let folder = arguments.require::<PathBuf>("folder")?;
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&inotify, &folder, WatchFlags::MOVED_TO)?;
    let (noticed, watched) = mpsc::channel(1);
    let (asked, questions) = mpsc::unbounded_channel();
    let (answers, built) = mpsc::channel(1);
    let (reports, reported) = mpsc::channel(16);
    let waker = Waker::new()?;
    spawn("strait-watch", move || watch(&inotify, &noticed))?;
    spawn("strait-builder", move || build(questions, &answers))?;
    let woken = waker.clone();
    spawn("strait-worker-0", move || work(&woken, &reports))?;
    writeln!(io::stdout(), "ready")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let serving = control(watched, asked, built, waker, reported);
    runtime.block_on(async { tokio::spawn(serving).await })?;
    Ok(())
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run)?;
    Ok(())
}

fn watch(inotify: &OwnedFd, noticed: &mpsc::Sender<()>) -> io::Result<()> {
    let quiet = Timespec::try_from(QUIET).map_err(io::Error::other)?;
    loop {
        poll(&mut [PollFd::new(inotify, PollFlags::IN)], None)?;
        drain(inotify)?;
        // As there, what else comes meanwhile waits.
        poll(&mut [], Some(&quiet))?;
        drain(inotify)?;
        if noticed.blocking_send(()).is_err() {
            return Ok(());
        }
    }
}

fn drain(inotify: &OwnedFd) -> io::Result<()> {
    let mut buffer = [const { MaybeUninit::uninit() }; 4096];
    let mut reader = inotify::Reader::new(inotify.as_fd(), &mut buffer);
    loop {
        match reader.next() {
            Ok(_) => {}
            Err(Errno::WOULDBLOCK) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn build(mut questions: mpsc::UnboundedReceiver<()>, answers: &mpsc::Sender<()>) -> io::Result<()> {
    while questions.blocking_recv().is_some() {
        if answers.blocking_send(()).is_err() {
            break;
        }
    }
    Ok(())
}

fn work(waker: &Waker, reports: &mpsc::Sender<()>) -> io::Result<()> {
    let (poller, mut events) = (Poller::new()?, Events::new());
    poller.add_waker(waker, 0)?;
    loop {
        poller.wait(Some(TURN), &mut events)?;
        if !events.is_empty() {
            waker.drain();
            if reports.try_send(()).is_err() {
                return Ok(());
            }
        }
    }
}

async fn control(
    mut watched: mpsc::Receiver<()>,
    asked: mpsc::UnboundedSender<()>,
    mut built: mpsc::Receiver<()>,
    waker: Waker,
    mut reported: mpsc::Receiver<()>,
) {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(()) = watched.recv() => drop(asked.send(())),
            Some(()) = built.recv() => waker.wake(),
            Some(()) = reported.recv() => {}
            _ = tick.tick() => {}
            else => return,
        }
    }
}
