//! Requests over keep-alive connections, and how long each took.
//!
//! ```text
//! load --target 127.0.0.1:8080 --connections 64 --seconds 5 [--rate 30000] [--warmup 1] [--body yes]
//! ```
//!
//! With `--rate` the requests have a schedule that does not care how the proxy fares: one each
//! 1/rate seconds, on whichever connection is free, later if none is. A latency counts from the
//! scheduled moment, so that a stall is seen by all the requests that it kept waiting (no
//! coordinated omission), and a request that was never answered counts as what it had waited.
//! Without `--rate` each connection sends its next request as soon as it was answered.
//!
//! The first `--warmup` seconds are not counted. The result is one line of JSON. Latencies are
//! exact; the generator's own delay is part of them, the same for every proxy.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use ::io::{Address, ConnectOptions, Events, Poller, Readiness, Socket, clock};
use bench::arguments::Arguments;
use bench::latencies::Latencies;
use bench::messages::Messages;
use bench::requests::{is_success, request};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

const NAMES: [&str; 6] = ["target", "connections", "seconds", "rate", "warmup", "body"];
const TIMER: u64 = u64::MAX;
const SCRATCH_BYTES: usize = 64 << 10;
const SECOND: u64 = 1_000_000_000;
/// How long answers are waited for after the last request.
const GRACE: u64 = 2 * SECOND;

struct Connection {
    socket: Socket,
    responses: Messages,
    /// When the request that is on its way was due.
    asked: Option<u64>,
    is_connected: bool,
    is_ending: bool,
}

/// When requests are due, all in nanoseconds of the monotonic clock.
struct Schedule {
    begin: u64,
    /// Requests that were due before do not count.
    counted_from: u64,
    end: u64,
    /// Requests each second, or none for as fast as they are answered.
    rate: Option<u64>,
    /// How many were due so far.
    due_count: u64,
}

#[derive(Default)]
struct Outcome {
    latencies: Latencies,
    errors: u64,
    unanswered: u64,
    /// All that were answered, counted or not.
    answered: u64,
}

struct Load {
    poller: Poller,
    timer: OwnedFd,
    /// The time that the timer is set to.
    alarm: u64,
    target: SocketAddr,
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    schedule: Schedule,
    request: Vec<u8>,
    scratch: Vec<u8>,
    outcome: Outcome,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1), &NAMES)?;
    ::io::limits::raise_open_files()?;
    let count = arguments.require::<usize>("connections")?;
    let has_body = arguments.find::<String>("body")?.is_some_and(|value| value == "yes");
    let seconds = arguments.require::<u64>("seconds")?;
    let mut load = Load {
        poller: Poller::new()?,
        timer: timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?,
        alarm: 0,
        target: arguments.require("target")?,
        connections: Vec::with_capacity(count),
        idle: VecDeque::with_capacity(count),
        schedule: Schedule::new(
            arguments.find("rate")?,
            arguments.find::<u64>("warmup")?.unwrap_or(0),
            seconds,
        )?,
        request: request(has_body),
        scratch: vec![0; SCRATCH_BYTES],
        outcome: Outcome::default(),
    };
    load.poller.add(&load.timer, TIMER)?;
    for index in 0..count {
        let connection = load.connect(index)?;
        load.connections.push(connection);
    }
    load.run()?;
    load.report(seconds)
}

impl Load {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::new();
        loop {
            let now = clock::monotonic_ns();
            self.send_due(now)?;
            if self.is_over(now) {
                return Ok(());
            }
            self.set_alarm(now)?;
            self.poller.wait(None, &mut events)?;
            for event in events.iter().filter(|event| event.token != TIMER) {
                let index = usize::try_from(event.token).map_err(io::Error::other)?;
                if self.on_event(index, event.readiness).is_err() {
                    self.replace(index)?;
                }
            }
        }
    }

    /// Sends what is due, as far as connections are free.
    fn send_due(&mut self, now: u64) -> io::Result<()> {
        while let Some(due) = self.schedule.next_due(now) {
            let Some(index) = self.idle.pop_front() else { return Ok(()) };
            self.schedule.due_count += 1;
            if self.send(index, due).is_err() {
                self.replace(index)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, index: usize, due: u64) -> io::Result<()> {
        let connection = self.connections.get_mut(index).ok_or(ErrorKind::NotFound)?;
        connection.asked = Some(due);
        // A socket that was answered on has room for one request.
        match connection.socket.send_slice(&self.request)? {
            sent if sent == self.request.len() => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    /// Whether all that was due was answered, or time is up.
    fn is_over(&self, now: u64) -> bool {
        let is_answered = self.idle.len() == self.connections.len();
        now >= self.schedule.end && self.schedule.next_due(now).is_none() && is_answered
            || now >= self.schedule.end + GRACE
    }

    fn set_alarm(&mut self, now: u64) -> io::Result<()> {
        let alarm = if now >= self.schedule.end {
            self.schedule.end + GRACE
        } else if self.idle.is_empty() {
            self.schedule.end
        } else {
            self.schedule.next_moment().min(self.schedule.end)
        };
        if alarm == self.alarm {
            return Ok(());
        }
        self.alarm = alarm;
        let time = |nanoseconds: u64| -> io::Result<Timespec> {
            Ok(Timespec {
                tv_sec: i64::try_from(nanoseconds / SECOND).map_err(io::Error::other)?,
                tv_nsec: i64::try_from(nanoseconds % SECOND).map_err(io::Error::other)?,
            })
        };
        let once = Itimerspec { it_interval: time(0)?, it_value: time(alarm)? };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }

    fn on_event(&mut self, index: usize, readiness: Readiness) -> io::Result<()> {
        let connection = self.connections.get_mut(index).ok_or(ErrorKind::NotFound)?;
        connection.is_ending |= !readiness.is_open();
        if readiness.is_writable() && !connection.is_connected {
            connection.socket.take_error()?;
            connection.is_connected = true;
            self.idle.push_back(index);
        }
        if !readiness.is_readable() {
            return Ok(());
        }
        loop {
            let read = match connection.socket.recv(&mut self.scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let now = clock::monotonic_ns();
            let bytes = self.scratch.get(..read).unwrap_or_default();
            let ended =
                connection.responses.feed(bytes, is_success).map_err(|_| ErrorKind::InvalidData)?;
            if ended > 0 {
                let asked = connection.asked.take().ok_or(ErrorKind::InvalidData)?;
                self.outcome.answered += 1;
                if self.schedule.is_counted(asked) {
                    self.outcome.latencies.push(now.saturating_sub(asked));
                }
                self.idle.push_back(index);
            }
            if read < self.scratch.len() && !connection.is_ending {
                return Ok(());
            }
        }
    }

    /// Counts a connection that failed, and makes another in its place.
    fn replace(&mut self, index: usize) -> io::Result<()> {
        self.outcome.errors += 1;
        self.idle.retain(|&free| free != index);
        let connection = self.connect(index)?;
        if let Some(slot) = self.connections.get_mut(index) {
            *slot = connection;
        }
        Ok(())
    }

    fn connect(&self, index: usize) -> io::Result<Connection> {
        let target = Address::Tcp(self.target);
        let (socket, _) = Socket::connect(target, &ConnectOptions::default())?;
        self.poller.add(&socket, index as u64)?;
        Ok(Connection {
            socket,
            responses: Messages::default(),
            asked: None,
            is_connected: false,
            is_ending: false,
        })
    }

    fn report(&mut self, seconds: u64) -> io::Result<()> {
        let now = clock::monotonic_ns();
        for connection in &self.connections {
            self.outcome.forget(&self.schedule, connection.asked, now);
        }
        while let Some(due) = self.schedule.next_due(now).filter(|_| self.schedule.rate.is_some()) {
            self.schedule.due_count += 1;
            self.outcome.forget(&self.schedule, Some(due), now);
        }
        let Outcome { latencies, errors, unanswered, answered } = &mut self.outcome;
        let requests = (latencies.len() as u64).saturating_sub(*unanswered);
        let [p50, p90, p99, p999, max] = latencies.quantiles([500, 900, 990, 999, 1000]);
        writeln!(
            io::stdout(),
            "{{\"requests\":{requests},\"seconds\":{seconds},\"answered\":{answered},\"errors\":{errors},\
             \"unanswered\":{unanswered},\"p50_ns\":{p50},\"p90_ns\":{p90},\"p99_ns\":{p99},\
             \"p999_ns\":{p999},\"max_ns\":{max}}}"
        )
    }
}

impl Schedule {
    fn new(rate: Option<u64>, warmup: u64, seconds: u64) -> io::Result<Self> {
        if rate == Some(0) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "--rate 0 asks for nothing"));
        }
        let begin = clock::monotonic_ns();
        let counted_from = begin.saturating_add(warmup.saturating_mul(SECOND));
        let end = counted_from.saturating_add(seconds.saturating_mul(SECOND));
        Ok(Self { begin, counted_from, end, rate, due_count: 0 })
    }

    /// The moment of the next request, if it has come.
    fn next_due(&self, now: u64) -> Option<u64> {
        let moment = if self.rate.is_some() { self.next_moment() } else { now };
        (moment <= now && moment < self.end).then_some(moment)
    }

    /// The moment of the next request. Computed from the beginning, so that nothing adds up.
    fn next_moment(&self) -> u64 {
        let Some(rate) = self.rate else { return self.begin };
        let (seconds, rest) = (self.due_count / rate, self.due_count % rate);
        self.begin
            .saturating_add(seconds.saturating_mul(SECOND))
            .saturating_add(rest.saturating_mul(SECOND) / rate)
    }

    fn is_counted(&self, due: u64) -> bool {
        (self.counted_from..self.end).contains(&due)
    }
}

impl Outcome {
    /// Counts a request that was due and has no answer.
    fn forget(&mut self, schedule: &Schedule, due: Option<u64>, now: u64) {
        if let Some(due) = due.filter(|&due| schedule.is_counted(due)) {
            self.latencies.push(now.saturating_sub(due));
            self.unanswered += 1;
        }
    }
}
