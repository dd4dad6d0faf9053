//! Pauses before an endpoint is connected to again that takes connections and processes nothing.
//!
//! Such an endpoint accepts, and says at once that it goes away from all it was asked (GOAWAY with a last
//! stream of 0). What it did not process is asked again, so that without a pause one request would open
//! connection after connection. The first time costs nothing: a service that restarts does it once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::time::Duration;

use config::snapshot::EndpointId;

use crate::tools::peer_address::PeerAddress;
use crate::tools::time::Time;

/// The pause after the second refusal in a row; it doubles with each.
const FIRST: Duration = Duration::from_millis(25);

/// Pauses grow no longer than this: a service that is back is found within a second.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Destinations of original-destination clusters of which a worker remembers that they refused.
const DESTINATIONS_MAX: usize = 1024;

/// How an endpoint behaved of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    /// Connections in a row on which it processed nothing.
    refusals: u8,
    /// When it may be connected to again.
    until: Option<Time>,
}

impl Backoff {
    /// It went away from a connection on which it had processed nothing. Half of the pause is by chance,
    /// so that workers and processes do not all come back at once. Returns the end of the pause, if there is one.
    pub(super) fn on_refused(&mut self, random: u64, now: Time) -> Option<Time> {
        self.refusals = self.refusals.saturating_add(1);
        let doublings = self.refusals.checked_sub(2)?;
        let pause = FIRST.saturating_mul(1 << doublings.min(10)).min(PAUSE_MAX);
        let half = u64::try_from(pause.as_nanos() / 2).unwrap_or(u64::MAX);
        let by_chance = random.checked_rem(half).unwrap_or_default();
        self.until = Some(now + pause / 2 + Duration::from_nanos(by_chance));
        self.until
    }

    /// It answered.
    pub(super) fn on_answered(&mut self) {
        *self = Self::default();
    }

    /// How many refusals in a row, and how long the pause still is, ns.
    pub(super) fn save(&self, now: Time) -> (u8, u64) {
        (self.refusals, self.until.map_or(0, |until| until.nanos_since(now)))
    }

    /// What [`Self::save`] has written. No pause is longer than any is made.
    pub(super) fn restore((refusals, pause): (u8, u64), now: Time) -> Self {
        let pause = Duration::from_nanos(pause).min(PAUSE_MAX);
        Self { refusals, until: (!pause.is_zero()).then(|| now + pause) }
    }

    /// Until when no connection is opened to it, if that is later than `now`.
    pub(super) fn pause(&self, now: Time) -> Option<Time> {
        self.until.filter(|until| *until > now)
    }
}

/// How the destinations of original-destination clusters behaved of late: those that refused and did not
/// answer since. Clients choose destinations, so there are [`DESTINATIONS_MAX`] at most.
#[derive(Debug, Default)]
pub(super) struct Refusing(BTreeMap<(EndpointId, SocketAddr), Backoff>);

impl Refusing {
    /// As [`Backoff::on_refused`]. A new destination takes the place of the one whose pause ends first.
    pub(super) fn on_refused(
        &mut self,
        destination: (EndpointId, SocketAddr),
        random: u64,
        now: Time,
    ) -> Option<Time> {
        if self.0.len() >= DESTINATIONS_MAX && !self.0.contains_key(&destination) {
            let first = self.0.iter().min_by_key(|(_, backoff)| backoff.until);
            if let Some(first) = first.map(|(destination, _)| *destination) {
                self.0.remove(&first);
            }
        }
        self.0.entry(destination).or_default().on_refused(random, now)
    }

    /// A destination answered; nothing is asked where none refused.
    pub(super) fn on_answered(&mut self, endpoint: EndpointId, peer: &PeerAddress) {
        if !self.0.is_empty()
            && let Some(destination) = peer.socket_address()
        {
            self.0.remove(&(endpoint, destination));
        }
    }

    /// As [`Backoff::pause`].
    pub(super) fn pause(&self, destination: (EndpointId, SocketAddr), now: Time) -> Option<Time> {
        self.0.get(&destination)?.pause(now)
    }

    /// Forgets the destinations that `endpoint` stands for.
    pub(super) fn forget(&mut self, endpoint: EndpointId) {
        while let Some((&found, _)) = self.0.range((endpoint, LOWEST)..).next()
            && found.0 == endpoint
        {
            self.0.remove(&found);
        }
    }
}

/// No destination is before it.
pub(super) const LOWEST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

#[cfg(test)]
mod tests {
    use config::snapshot::Id;

    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound_and_end_with_an_answer() {
        let now = Time::from_nanos(1_000_000_000);
        for random in [0, u64::MAX] {
            let mut backoff = Backoff::default();
            assert_eq!(backoff.on_refused(random, now), None);
            assert_eq!(backoff.pause(now), None, "once is no habit");
            for millis in [25, 50, 100, 200, 400, 800, 1_000, 1_000] {
                let until = backoff.on_refused(random, now);
                assert_eq!(until, backoff.pause(now));
                let pause = until.expect("a pause") - now;
                let whole = Duration::from_millis(millis);
                assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
                assert_eq!(backoff.pause(now + whole), None);
            }
            for _ in 0..300 {
                backoff.on_refused(random, now);
            }
            assert!(backoff.pause(now).is_some());
            backoff.on_answered();
            assert_eq!(backoff.pause(now), None);
        }
    }

    #[test]
    fn destinations_are_remembered_up_to_their_bound_and_until_they_answer() {
        let now = Time::from_nanos(1_000_000_000);
        let endpoint = EndpointId::default();
        let at = |port: usize| SocketAddr::from(([192, 0, 2, 1], u16::try_from(port).unwrap()));
        let mut refusing = Refusing::default();
        for port in [80, 80, 80, 81, 81] {
            refusing.on_refused((endpoint, at(port)), 0, now);
        }
        assert!(refusing.pause((endpoint, at(80)), now) > refusing.pause((endpoint, at(81)), now));
        for port in 1_000..1_000 + 2 * DESTINATIONS_MAX {
            assert_eq!(refusing.on_refused((endpoint, at(port)), 0, now), None, "the first time");
        }
        assert_eq!(refusing.0.len(), DESTINATIONS_MAX);
        assert!(refusing.pause((endpoint, at(81)), now).is_some(), "pauses stay the longest");
        refusing.on_answered(endpoint, &PeerAddress::from(at(81)));
        assert_eq!(refusing.pause((endpoint, at(81)), now), None);
        let other = EndpointId(Id { slot: 1, generation: 0 });
        refusing.on_refused((other, at(80)), 0, now);
        refusing.forget(endpoint);
        assert!(refusing.0.len() == 1 && refusing.0.contains_key(&(other, at(80))));
    }
}
