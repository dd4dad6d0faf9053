//! `strait top`: what a running process carries, in a terminal.
//!
//! [`state`] is what is shown and what keys do, [`screen`] draws it, [`sample`] is what the admin interface said, and
//! `fetch` asks it on a thread of its own, so that keys work while a process is silent or gone. Only entries
//! that fit the screen are asked for.

mod fetch;
mod sample;
mod screen;
mod state;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _, Write as _};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};

use self::fetch::Fetcher;
use self::state::{Then, Top};
pub(crate) use self::state::{TopSort, View};
use crate::Failure;
use crate::admin_client::AdminClient;
use crate::arguments::TopOptions;

/// How long keys may wait for what was asked, and what was asked for keys.
const TICK: Duration = Duration::from_millis(50);

/// Runs until it is quit, or prints once.
pub(crate) fn top(options: &TopOptions) -> Result<(), Failure> {
    let failed = |error: crate::admin_client::AdminError| Failure::Top(error.to_string());
    let client = AdminClient::new(&options.admin).map_err(failed)?;
    let top = Top::new(options);
    if options.once { once(client, top, options) } else { watch(client, top, options) }
}

/// Prints a table of what two looks tell, so that rates are those between them.
fn once(mut client: AdminClient, mut top: Top, options: &TopOptions) -> Result<(), Failure> {
    top.set_height(options.limit);
    for look in 0..2 {
        if look > 0 {
            wait(options.interval);
        }
        let question = top.question();
        let answer = fetch::ask(&mut client, &question);
        let answer = answer.map_err(|error| Failure::Top(error.to_string()))?;
        top.on_answer(&question, Ok(answer), fetch::now());
    }
    Ok(io::stdout().lock().write_all(top.table().to_text().as_bytes())?)
}

#[expect(clippy::disallowed_methods, reason = "rates are those of a time that passes")]
fn wait(interval: Duration) {
    std::thread::sleep(interval);
}

fn watch(client: AdminClient, mut top: Top, options: &TopOptions) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(no_terminal("standard output is none"));
    }
    let fetcher = Fetcher::start(client, options.interval)?;
    let is_to_end = note_signals()?;
    let mut terminal = ratatui::try_init().map_err(|error| {
        // What it has done until then. If that fails, there is no terminal.
        let _ = ratatui::try_restore();
        no_terminal(&error.to_string())
    })?;
    let result = show(&mut terminal, &fetcher, &mut top, &is_to_end);
    let shown = terminal.show_cursor();
    if ratatui::try_restore().and(shown).is_err() {
        // It is gone, and standard error with it, where a panic would follow from what this reports there.
        mem::forget(terminal);
    }
    result
}

fn no_terminal(why: &str) -> Failure {
    Failure::Top(format!("no terminal ({why}): with --once it prints a table and needs none"))
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    fetcher: &Fetcher,
    top: &mut Top,
    is_to_end: &AtomicBool,
) -> Result<(), Failure> {
    let events = read_events()?;
    while !is_to_end.load(Ordering::Relaxed) {
        // Fails if the terminal is gone, as each time something is written.
        terminal.draw(|frame| {
            top.set_height(screen::rows(frame.area()));
            screen::draw(top, frame);
        })?;
        fetcher.want(&top.question());
        match events.recv_timeout(TICK) {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                if top.on_key(key) == Then::Quit {
                    return Ok(());
                }
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Top("the terminal cannot be read".to_owned()));
            }
        }
        while let Some((question, answer, at)) = fetcher.answer() {
            top.on_answer(&question, answer, at);
        }
    }
    Ok(())
}

/// Keys and other events of the terminal, read on a thread of its own: once a terminal is gone, that never returns, and ends with the
/// process.
fn read_events() -> io::Result<Receiver<Event>> {
    let (sender, events) = mpsc::channel();
    let read = move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("strait-keys".to_owned()).spawn(read)?;
    Ok(events)
}

/// Notes the signals whose default would leave the terminal without its former screen.
fn note_signals() -> io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut hangup, mut interrupt, mut quit) = {
        let _entered = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::quit())?,
        )
    };
    let is_to_end = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&is_to_end);
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
                _ = interrupt.recv() => {}
                _ = quit.recv() => {}
            }
        });
        noted.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("strait-signals".to_owned()).spawn(wait)?;
    Ok(is_to_end)
}
