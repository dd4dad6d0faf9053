//! What is remembered of an exchange until it is over: when things happened, how many bytes went
//! each way, and the words of the request that the access log wants.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use telemetry::FAILED_ATTEMPTS_BYTES_MAX;
use telemetry::cause::Cause;
use telemetry::events::Stages;
use wire::buffer::Buffer;
use wire::head::{Known, RequestHead};

use crate::tools::buffers::Buffers;
use crate::tools::detail::Detail;
use crate::tools::time::Time;

/// Bytes of one word that are remembered; what is longer is cut.
const WORD_BYTES_MAX: usize = 1024;

/// What is remembered of one exchange.
#[derive(Debug)]
pub(crate) struct ExchangeRecord {
    pub(crate) stamps: Stamps,
    pub(crate) status: u16,
    /// Whether the proxy made the response itself.
    pub(crate) is_reply: bool,
    pub(crate) response_bytes: u64,
    /// Why it ended, or will end, other than well.
    pub(crate) cause: Option<Cause>,
    /// What was said about that, if anything.
    pub(crate) cause_detail: Option<Detail>,
    /// The endpoint and the cause of each attempt that failed and was followed by another, as the access log has them.
    pub(crate) failed_attempts: Option<Box<[u8]>>,
    /// The client, if a trusted hop knows it better than the connection does.
    pub(crate) client: Option<IpAddr>,
    pub(crate) words: Words,
    /// Header fields that the access log asks for, as [`telemetry::captures`] writes them.
    pub(crate) captures: Option<Buffer>,
}

impl ExchangeRecord {
    pub(crate) fn new(stamps: Stamps) -> Self {
        Self {
            stamps,
            status: 0,
            is_reply: false,
            response_bytes: 0,
            cause: None,
            cause_detail: None,
            failed_attempts: None,
            client: None,
            words: Words::default(),
            captures: None,
        }
    }
}

impl ExchangeRecord {
    /// An attempt at this endpoint failed, and another follows.
    #[cold]
    pub(crate) fn note_failed_attempt(&mut self, endpoint: &[u8], cause: Cause) {
        let mut all = self.failed_attempts.take().map_or_else(Vec::new, <[u8]>::into_vec);
        if !all.is_empty() {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(endpoint);
        all.push(b' ');
        all.extend_from_slice(cause.as_str().as_bytes());
        all.truncate(FAILED_ATTEMPTS_BYTES_MAX);
        self.failed_attempts = Some(all.into_boxed_slice());
    }
}

/// When things happened; [`Time::NEVER`] for what did not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamps {
    /// The connection was accepted; only for its first request.
    pub(crate) accepted: Time,
    /// First byte of the request's head.
    pub(crate) began: Time,
    /// Last byte of it.
    pub(crate) head_read: Time,
    /// The exchange began to wait for a connection.
    pub(crate) wait_began: Time,
    /// The wait was over.
    pub(crate) wait_ended: Time,
    /// A connection began to be established.
    pub(crate) connect_began: Time,
    /// It was established.
    pub(crate) connected: Time,
    /// First request byte handed to the upstream's socket.
    pub(crate) write_began: Time,
    /// The last byte that came of the request was handed to it; never while some wait.
    pub(crate) written: Time,
    /// First byte of the response.
    pub(crate) first_byte: Time,
    /// Last byte of it.
    pub(crate) response_read: Time,
    /// Since then the downstream owes more of the body, and nothing else is waited for.
    pub(crate) body_since: Time,
    /// Since then the upstream is not read, because the downstream does not take what is there.
    pub(crate) held_since: Time,
    pub(crate) waits: Waits,
}

/// How long a peer was waited for while the other was not read, or not written to, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waits {
    /// For more of the body, before any of the request was written.
    early_body: u64,
    /// For more of the body after that, and before the response.
    late_body: u64,
    /// For the downstream to take more of the response.
    held: u64,
    /// For earlier attempts, and between them.
    retries: u64,
}

impl Stamps {
    /// How many there are.
    pub(crate) const COUNT: usize = 13;

    pub(crate) const NONE: Self = Self {
        accepted: Time::NEVER,
        began: Time::NEVER,
        head_read: Time::NEVER,
        wait_began: Time::NEVER,
        wait_ended: Time::NEVER,
        connect_began: Time::NEVER,
        connected: Time::NEVER,
        write_began: Time::NEVER,
        written: Time::NEVER,
        first_byte: Time::NEVER,
        response_read: Time::NEVER,
        body_since: Time::NEVER,
        held_since: Time::NEVER,
        waits: Waits { early_body: 0, late_body: 0, held: 0, retries: 0 },
    };

    /// Every stamp in one order, for saving.
    pub(crate) const fn all_mut(&mut self) -> [&mut Time; Self::COUNT] {
        [
            &mut self.accepted,
            &mut self.began,
            &mut self.head_read,
            &mut self.wait_began,
            &mut self.wait_ended,
            &mut self.connect_began,
            &mut self.connected,
            &mut self.write_began,
            &mut self.written,
            &mut self.first_byte,
            &mut self.response_read,
            &mut self.body_since,
            &mut self.held_since,
        ]
    }

    /// All of the request that came is written, or waits for the rest: the downstream is waited for.
    pub(crate) const fn await_body(&mut self, now: Time) {
        if !self.body_since.is_set() && !self.first_byte.is_set() {
            self.body_since = now;
        }
    }

    /// The upstream took some of the request, or nothing though some waits; `is_all`: all that came so far.
    pub(crate) fn on_written(&mut self, is_all: bool, began: Time, now: Time) {
        self.write_began = self.write_began.min(began);
        self.written = if is_all { now } else { Time::NEVER };
    }

    /// More of the body came, or its end.
    pub(crate) fn on_body(&mut self, now: Time) {
        let length = between(self.body_since, now.min(self.first_byte));
        self.body_since = Time::NEVER;
        if self.write_began.is_set() {
            self.waits.late_body += length;
        } else {
            self.waits.early_body += length;
        }
    }

    /// How long the downstream was waited for with its body since the attempt began to be written, and before the response.
    pub(crate) fn waited_for_body(&self, now: Time) -> Duration {
        if !self.write_began.is_set() {
            return Duration::ZERO;
        }
        let current = between(self.body_since.max(self.write_began), now.min(self.first_byte));
        let current = if self.body_since.is_set() { current } else { 0 };
        Duration::from_nanos(self.waits.late_body + current)
    }

    /// So much of the response waits for the downstream that no more of it is read.
    pub(crate) const fn hold_response(&mut self, now: Time) {
        if !self.held_since.is_set() && !self.response_read.is_set() {
            self.held_since = now;
        }
    }

    /// The downstream took enough of it for more to be read.
    pub(crate) fn resume_response(&mut self, now: Time) {
        self.waits.held += between(self.held_since, now.min(self.response_read));
        self.held_since = Time::NEVER;
    }

    /// Only how long it took, for an exchange that ended at `now`.
    pub(crate) fn total_only(&self, now: Time) -> Stages {
        Stages { total: between(self.began, now), ..Stages::default() }
    }

    /// A connection begins to be established. One that failed before it counts with it: what a retry
    /// costs is time in which there is no connection.
    pub(crate) const fn on_connecting(&mut self, now: Time) {
        if !self.connect_began.is_set() || self.connected.is_set() {
            self.connect_began = now;
            self.connected = Time::NEVER;
        }
    }

    /// An attempt failed and another follows, whose stages are counted anew.
    pub(crate) fn on_retry(&mut self, now: Time) {
        self.on_body(now);
        let Waits { late_body, .. } = self.waits;
        self.waits.retries += between(self.routed(), now).saturating_sub(late_body);
        self.waits.early_body += std::mem::take(&mut self.waits.late_body);
        for stamp in [
            &mut self.wait_began,
            &mut self.wait_ended,
            &mut self.connect_began,
            &mut self.connected,
            &mut self.write_began,
            &mut self.written,
            &mut self.first_byte,
        ] {
            *stamp = Time::NEVER;
        }
    }

    /// The pause before another attempt, which began then, is over.
    pub(crate) const fn on_pause_over(&mut self, began: Time, now: Time) {
        self.waits.retries += between(began, now);
    }

    /// When the first thing was done for this attempt.
    fn routed(&self) -> Time {
        self.wait_began.min(self.connect_began).min(self.write_began)
    }

    /// The stages between the stamps, for an exchange that ended at `now`. What was waited for in
    /// vain lasted until then, or until something else was done.
    pub(crate) fn stages(&self, now: Time) -> Stages {
        let mut last = *self;
        let is_uploading = last.body_since.is_set();
        let written_before = last.waits.late_body;
        last.on_body(now);
        last.resume_response(now);
        let Waits { early_body, late_body, held, retries } = last.waits;
        // What is still owed comes after the last byte that was written.
        let (amid_write, behind_write) = match is_uploading {
            true => (written_before, late_body - written_before),
            false => (late_body, 0),
        };
        let answered = self.first_byte.min(now);
        let connected = [self.connected, self.write_began, now];
        let connected =
            connected.into_iter().find(|end| end.is_set() && *end >= self.connect_began);
        Stages {
            accept: between(self.accepted, self.began),
            read_head: between(self.began, self.head_read),
            route: between(self.head_read, self.routed()).saturating_sub(early_body + retries),
            request_body: early_body + late_body,
            retries,
            pool_wait: between(self.wait_began, self.wait_ended.min(now)),
            connect: between(self.connect_began, connected.unwrap_or(now)),
            upstream_write: between(self.write_began, self.written.min(answered))
                .saturating_sub(amid_write),
            first_byte: between(self.written, answered).saturating_sub(behind_write),
            response: between(self.first_byte, self.response_read.min(now)).saturating_sub(held),
            downstream_write: between(self.response_read, now) + held,
            total: between(self.began, now),
        }
    }
}

/// Length of a stage that began and ended, 0 of one that did not.
const fn between(from: Time, to: Time) -> u64 {
    if from.is_set() && to.is_set() { to.nanos_since(from) } else { 0 }
}

/// Words of the request head, one behind the other in one buffer.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) text: Option<Buffer>,
    pub(crate) lengths: [u16; Word::COUNT],
}

/// Which word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    Method,
    Target,
    Host,
    RequestId,
    UserAgent,
}

impl Word {
    const COUNT: usize = 5;
}

impl Words {
    /// Copies the words of `head`.
    pub(crate) fn take(head: &RequestHead<'_>, buffers: &mut Buffers) -> Self {
        let field = |known| head.field(known).unwrap_or_default();
        let query = head.query();
        let (mark, query) = query.map_or((&b""[..], &b""[..]), |query| (&b"?"[..], query));
        let target: [&[u8]; 3] = [head.path(), mark, query];
        let words: [&[&[u8]]; Word::COUNT] = [
            &[head.method_bytes()],
            &target,
            &[head.authority()],
            &[field(Known::XRequestId)],
            &[field(Known::UserAgent)],
        ];
        let room = words.iter().map(|parts| length(parts)).sum();
        let mut text = buffers.lease(room);
        let mut lengths = [0; Word::COUNT];
        for (parts, place) in words.iter().zip(&mut lengths) {
            let before = text.len();
            for part in *parts {
                let left = WORD_BYTES_MAX - (text.len() - before);
                text.push(part.get(..part.len().min(left)).unwrap_or_default());
            }
            *place = u16::try_from(text.len() - before).expect("a word is cut at its bound");
        }
        Self { text: Some(text), lengths }
    }

    /// The host alone, of what has no head.
    pub(crate) fn of_host(host: &str, buffers: &mut Buffers) -> Self {
        let host = host.as_bytes();
        let mut words = Self { text: Some(buffers.lease_with(host)), ..Self::default() };
        if let Some(length) = words.lengths.get_mut(Word::Host as usize) {
            *length = u16::try_from(host.len()).unwrap_or(u16::MAX);
        }
        words
    }

    /// One word; empty if none were taken.
    pub(crate) fn word(&self, word: Word) -> &[u8] {
        let before =
            self.lengths.iter().take(word as usize).map(|n| usize::from(*n)).sum::<usize>();
        let length = self.lengths.get(word as usize).map_or(0, |n| usize::from(*n));
        let text = self.text.as_ref().map_or(&[][..], Buffer::filled);
        text.get(before..before + length).unwrap_or_default()
    }
}

fn length(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum::<usize>().min(WORD_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Time {
        Time::from_nanos(micros * 1_000)
    }

    fn began() -> Stamps {
        Stamps { began: at(0), head_read: at(10), ..Stamps::NONE }
    }

    fn micros(nanos: u64) -> u64 {
        nanos / 1_000
    }

    #[test]
    fn what_was_waited_for_in_vain_is_told() {
        let waited = Stamps { wait_began: at(20), ..began() };
        assert_eq!(micros(waited.stages(at(5_020)).pool_wait), 5_000);
        let mut asked = Stamps { write_began: at(30), written: at(40), ..began() };
        assert_eq!(micros(asked.stages(at(1_040)).first_byte), 1_000);
        asked.first_byte = at(100);
        assert_eq!(micros(asked.stages(at(1_100)).response), 1_000);
        assert_eq!(micros(began().stages(at(1_100)).connect), 0);
    }

    #[test]
    fn a_slow_upload_is_the_clients_and_a_slow_upstream_its_own() {
        // Half of it is written at 40, the client sends the rest at 540, and the upstream takes it until 600.
        let mut upload = Stamps { write_began: at(30), written: at(40), ..began() };
        upload.await_body(at(40));
        assert_eq!(micros(upload.stages(at(240)).request_body), 200);
        assert_eq!(
            micros(upload.stages(at(240)).first_byte),
            0,
            "it is the client that is waited for"
        );
        upload.on_body(at(540));
        upload.written = at(600);
        let stages = upload.stages(at(1_600));
        assert_eq!((micros(stages.request_body), micros(stages.upstream_write)), (500, 70));
        assert_eq!(micros(stages.first_byte), 1_000);
        // An answer to what came of it ends the wait.
        upload.await_body(at(600));
        upload.first_byte = at(700);
        let stages = upload.stages(at(1_600));
        assert_eq!((micros(stages.request_body), micros(stages.first_byte)), (600, 0));
        assert_eq!(micros(stages.response), 900);
        upload.on_body(at(1_600));
        assert_eq!(micros(upload.stages(at(1_600)).request_body), 600);
    }

    #[test]
    fn what_an_upstream_never_takes_is_no_wait_for_its_answer() {
        let mut upload = Stamps { connected: at(20), ..began() };
        upload.on_written(false, at(30), at(35));
        let stages = upload.stages(at(1_030));
        assert_eq!((micros(stages.upstream_write), micros(stages.first_byte)), (1_000, 0));
        // An answer ends that, whatever is sent behind it.
        upload.first_byte = at(230);
        assert_eq!(micros(upload.stages(at(1_030)).upstream_write), 200);
        upload.on_written(true, at(630), at(830));
        let stages = upload.stages(at(1_030));
        assert_eq!((micros(stages.upstream_write), micros(stages.first_byte)), (200, 0));
        assert_eq!(micros(stages.response), 800);
    }

    #[test]
    fn a_body_that_waits_here_first_is_no_time_of_routing() {
        let mut buffered = began();
        buffered.await_body(at(20));
        buffered.on_body(at(820));
        buffered.write_began = at(830);
        buffered.written = at(840);
        let stages = buffered.stages(at(900));
        assert_eq!((micros(stages.request_body), micros(stages.route)), (800, 20));
        assert_eq!((micros(stages.upstream_write), micros(stages.first_byte)), (10, 60));
    }

    #[test]
    fn a_slow_client_is_no_slow_response() {
        let asked = Stamps { write_began: at(30), written: at(40), ..began() };
        let mut slow = Stamps { first_byte: at(100), ..asked };
        slow.hold_response(at(150));
        let stages = slow.stages(at(1_150));
        assert_eq!((micros(stages.response), micros(stages.downstream_write)), (50, 1_000));
        slow.resume_response(at(1_150));
        slow.hold_response(at(1_200));
        slow.hold_response(at(1_300));
        slow.resume_response(at(1_400));
        slow.response_read = at(1_450);
        let stages = slow.stages(at(1_500));
        assert_eq!((micros(stages.response), micros(stages.downstream_write)), (150, 1_250));
        // Once all of it is read, what waits is the last stage as it is.
        slow.hold_response(at(1_500));
        assert_eq!(micros(slow.stages(at(2_450)).downstream_write), 2_200);
    }

    #[test]
    fn connections_that_failed_count_with_the_one_that_came_about() {
        let mut stamps = began();
        stamps.on_connecting(at(20));
        stamps.on_connecting(at(720));
        let in_vain = stamps.stages(at(1_420));
        assert_eq!((micros(in_vain.route), micros(in_vain.connect)), (10, 1_400));
        // One of the pool.
        let pooled = Stamps { write_began: at(725), written: at(726), ..stamps };
        assert_eq!(micros(pooled.stages(at(800)).connect), 705);
        stamps.connected = at(730);
        assert_eq!(micros(stamps.stages(at(800)).connect), 710);
        // It broke, and another was needed.
        stamps.on_connecting(at(900));
        stamps.connected = at(950);
        assert_eq!(micros(stamps.stages(at(1_000)).connect), 50);
    }
}
