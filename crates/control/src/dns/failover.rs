//! Which DNS server is asked first: one that does not answer is asked last, by all names, until it answers again.
//!
//! A name that waits for a silent server has one of few rounds meanwhile, so that without this a dead first server delays
//! every name. Whether it is back is asked beside a question that another server answers, so that no name waits for that.
//! Only silence counts: what a server says of one name, SERVFAIL among it, is no reason to ask another first for all.
//!
//! Pure: time is an argument. There is one of these for each list of servers, with an entry for each server at most.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

/// How long a server that did not answer is left alone at first; each further failure doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest time between two attempts to see whether a server is back, while there are questions.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Failures in a row that count: the pause is the longest then.
const FAILURES_MAX: u32 = 6;

/// Failures in a row that are worth a line of the log: a single lost datagram is not.
const FAILURES_LOGGED: u32 = 3;

/// What is known of the servers of a list.
#[derive(Debug, Default)]
pub(super) struct Failover {
    servers: BTreeMap<SocketAddr, Server>,
}

/// What is known of one.
#[derive(Clone, Copy, Debug, Default)]
struct Server {
    answered_at: Option<Instant>,
    silence: Option<Silence>,
}

/// That it did not answer, and nothing came from it since.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// From 1 to `FAILURES_MAX`, each of a question that was asked after the one before had failed: many that wait at the same
    /// time are one.
    failures: u32,
    noted_at: Instant,
    /// When it is asked beside another server.
    probe_at: Instant,
}

impl Failover {
    /// These servers as they are to be asked: those that failed the least often in a row first, and otherwise as they are listed.
    pub(super) fn order(&self, servers: &[SocketAddr]) -> Vec<SocketAddr> {
        let failures = |server: &SocketAddr| {
            let silence = self.servers.get(server).and_then(|it| it.silence);
            silence.map_or(0, |it| it.failures)
        };
        let mut order = servers.to_vec();
        order.sort_by_key(failures);
        order
    }

    /// Of servers in the order in which they are asked, those that are to be asked beside the first one now. Each is not due
    /// again before its pause and `probe_max`, which is how long that may take, are over.
    pub(super) fn take_due(
        &mut self,
        order: &[SocketAddr],
        probe_max: Duration,
        now: Instant,
    ) -> Vec<SocketAddr> {
        let mut due = Vec::new();
        for server in order.iter().skip(1) {
            let silence = self.servers.get_mut(server).and_then(|it| it.silence.as_mut());
            if let Some(silence) = silence.filter(|it| it.probe_at <= now) {
                silence.probe_at = now + pause(silence.failures).max(probe_max);
                due.push(*server);
            }
        }
        due
    }

    /// A server said something. Returns whether that ends a silence that was worth a line of the log.
    pub(super) fn on_answer(&mut self, server: SocketAddr, now: Instant) -> bool {
        let known = self.servers.entry(server).or_default();
        known.answered_at = Some(now);
        known.silence.take().is_some_and(|it| it.failures >= FAILURES_LOGGED)
    }

    /// A server that was asked at `asked` did not answer, or could not be reached. Returns whether that is worth a line of the log.
    pub(super) fn on_silence(&mut self, server: SocketAddr, asked: Instant, now: Instant) -> bool {
        let known = self.servers.entry(server).or_default();
        // It is there, and has no answer to this question alone: the servers of one zone are silent, perhaps.
        if known.answered_at.is_some_and(|at| at > asked) {
            return false;
        }
        let failures = match known.silence {
            Some(silence) if asked < silence.noted_at => return false,
            Some(silence) => (silence.failures + 1).min(FAILURES_MAX),
            None => 1,
        };
        let is_logged = failures == FAILURES_LOGGED;
        let probe_at = now + pause(failures);
        known.silence = Some(Silence { failures, noted_at: now, probe_at });
        is_logged
    }
}

/// How long a server is left alone after so many failures in a row, the last one among them.
fn pause(failures: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How long a probe may take.
    const PROBE_MAX: Duration = Duration::from_secs(4);

    fn servers() -> [SocketAddr; 3] {
        [1, 2, 3].map(|n| SocketAddr::from(([10, 0, 0, n], 53)))
    }

    #[test]
    fn servers_are_asked_in_their_order_and_silent_ones_last() {
        let all = servers();
        let [a, b, c] = all;
        let mut failover = Failover::default();
        let start = Instant::now();
        assert_eq!(failover.order(&all), [a, b, c]);
        failover.on_silence(a, start, start + SECOND);
        assert_eq!(failover.order(&all), [b, c, a]);
        failover.on_silence(b, start + SECOND, start + 2 * SECOND);
        assert_eq!(failover.order(&all), [c, a, b]);
        // Of silent ones the first is the one that failed less often.
        failover.on_silence(a, start + SECOND, start + 2 * SECOND);
        failover.on_silence(c, start + 2 * SECOND, start + 3 * SECOND);
        assert_eq!(failover.order(&all), [b, c, a]);
        failover.on_answer(a, start + 4 * SECOND);
        assert_eq!(failover.order(&all), [a, b, c]);
        // None of them is known twice.
        assert_eq!(failover.servers.len(), 3);
    }

    #[test]
    fn questions_that_wait_at_the_same_time_are_one_failure() {
        let all = servers();
        let [a, ..] = all;
        let mut failover = Failover::default();
        let start = Instant::now();
        for n in 0..1000 {
            let later = Duration::from_millis(n);
            failover.on_silence(a, start + later, start + 2 * SECOND + later);
        }
        // The first pause is over, and no longer one.
        let end = start + 3 * SECOND;
        assert_eq!(failover.take_due(&failover.order(&all), PROBE_MAX, end - SECOND / 1000), []);
        assert_eq!(failover.take_due(&failover.order(&all), PROBE_MAX, end), [a]);
    }

    #[test]
    fn a_server_that_said_something_meanwhile_is_not_silent() {
        let all = servers();
        let [a, b, c] = all;
        let mut failover = Failover::default();
        let start = Instant::now();
        failover.on_answer(a, start + SECOND);
        assert!(!failover.on_silence(a, start, start + 2 * SECOND));
        assert_eq!(failover.order(&all), [a, b, c]);
        // One that was asked since then is.
        failover.on_silence(a, start + 2 * SECOND, start + 4 * SECOND);
        assert_eq!(failover.order(&all), [b, c, a]);
    }

    #[test]
    fn a_silent_server_is_probed_now_and_then_until_it_answers() {
        let all = servers();
        let [a, b, c] = all;
        let mut failover = Failover::default();
        let mut now = Instant::now();
        let mut logged = vec![failover.on_silence(a, now, now)];
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let noted = now;
            let order = failover.order(&all);
            assert_eq!(order, [b, c, a]);
            while failover.take_due(&order, PROBE_MAX, now).is_empty() {
                now += SECOND / 4;
            }
            pauses.push((now - noted).as_millis());
            // There is one probe at a time.
            assert_eq!(failover.take_due(&order, PROBE_MAX, now + PROBE_MAX - SECOND / 1000), []);
            let asked = now;
            now += PROBE_MAX;
            logged.push(failover.on_silence(a, asked, now));
        }
        assert_eq!(pauses, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        let places = logged.iter().enumerate().filter(|(_, is_logged)| **is_logged);
        assert_eq!(places.map(|(place, _)| place).collect::<Vec<_>>(), [2]);
        assert!(failover.on_answer(a, now));
        assert_eq!(failover.order(&all), [a, b, c]);
        assert_eq!(failover.take_due(&all, PROBE_MAX, now + 2 * PAUSE_MAX), []);
        // The next silence begins anew, and a short one is not logged.
        assert!(!failover.on_silence(a, now, now + SECOND));
        assert!(!failover.on_answer(a, now + 2 * SECOND));
    }

    #[test]
    fn a_server_that_is_asked_anyway_is_not_probed() {
        let all = servers();
        let mut failover = Failover::default();
        let start = Instant::now();
        for server in all {
            failover.on_silence(server, start, start);
        }
        let [_, b, c] = all;
        assert_eq!(failover.take_due(&failover.order(&all), PROBE_MAX, start + SECOND), [b, c]);
    }
}
