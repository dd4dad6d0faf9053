//! Records each request, what the services saw of it, and what came back, and checks the promises.

use std::collections::{BTreeMap, BTreeSet};

use proxy::time::Time;

use crate::http::Head;
use crate::network::{EndId, Network};
use crate::plan::RequestPlan;
use crate::versions::Versions;

/// Attempts that a request may take, the first included.
const ATTEMPTS_MAX: usize = 3;

/// The same, where rules have `retry`.
pub(crate) const RETRY_ATTEMPTS_MAX: u64 = 6;

/// The method of what is relayed, and never sent twice.
pub(crate) const RELAY: &str = "RELAY";

/// All requests of a simulation.
#[derive(Debug, Default)]
pub struct Ledger {
    requests: BTreeMap<u64, Record>,
    violations: Vec<String>,
    /// Rules may have `retry`, so that an idempotent request may be sent again whatever a service answered.
    may_retry_answers: bool,
    /// Requests to the listener that a source delivers, and which of its versions served when.
    to_delivered: BTreeSet<u64>,
    pub(crate) versions: Versions,
    /// Whether connections may move, and with them requests to a newer configuration.
    pub(crate) has_moves: bool,
    /// What services see is copies of requests, from here on.
    pub(crate) sees_copies: bool,
}

/// One request.
#[derive(Debug)]
struct Record {
    plan: RequestPlan,
    sightings: Vec<Sighting>,
    /// The same of its copy.
    copies: Vec<Sighting>,
    outcome: Outcome,
    /// When its first byte was sent.
    began: Option<Time>,
    /// When a service saw it first.
    first_seen: Option<Time>,
    /// The service's bytes may end early, and look as if they had ended in order.
    may_break_off: bool,
}

/// A service saw a request's head.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    end: EndId,
    /// Bytes that had been sent on the connection before the answer to this request could be seen.
    answer_at: u64,
    /// The service has said that it did not do anything about it.
    is_unprocessed: bool,
}

/// How a request ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Nothing is known yet.
    Pending,
    /// The client did not begin to send it.
    Unsent,
    /// The right response came, whole.
    Answered,
    /// Strait refused it, with this status.
    Refused(u16),
    /// A part of the right response came, and the client could see that the rest is missing.
    Truncated,
    /// The connection ended before a response began.
    Unanswered,
    /// An earlier response on the connection said `connection: close`.
    Declined,
    /// The client left.
    Abandoned,
    /// The client cancelled it, and stayed connected.
    Cancelled,
}

impl Record {
    fn seen(&mut self, of_copies: bool) -> &mut Vec<Sighting> {
        if of_copies { &mut self.copies } else { &mut self.sightings }
    }
}

impl Ledger {
    /// A client is going to send this.
    pub fn announce(&mut self, plan: &RequestPlan) {
        let record = Record {
            plan: plan.clone(),
            sightings: Vec::new(),
            copies: Vec::new(),
            outcome: Outcome::Pending,
            began: None,
            first_seen: None,
            may_break_off: false,
        };
        self.requests.insert(plan.id, record);
    }

    /// A client is going to send this to the listener that a source delivers.
    pub(crate) fn announce_to_delivered(&mut self, plan: &RequestPlan) {
        self.to_delivered.insert(plan.id);
        self.announce(plan);
    }

    /// A client sends some of a request.
    pub(crate) fn begin(&mut self, id: u64, now: Time) {
        if let Some(record) = self.requests.get_mut(&id) {
            record.began.get_or_insert(now);
        }
    }

    /// A client has read the head of a response: what answered was valid when the request began.
    pub(crate) fn check_versions(&mut self, id: u64, head: &Head, now: Time) {
        let is_interim = head.status().is_ok_and(|status| status < 200 && status != 101);
        let Some(record) = self.requests.get(&id).filter(|_| !is_interim) else { return };
        let is_to_delivered = self.to_delivered.contains(&id);
        let since = record.began.unwrap_or(now);
        let is_own = head.field("x-id").is_ok_and(|id| id.is_none());
        if is_own
            && head.status() == Ok(404)
            && !(is_to_delivered && self.versions.lacks_routes(since, now))
        {
            let what =
                format!("{id:016x}: Strait answers 404 to a good request, and there are routes");
            return self.violate(what);
        }
        if !is_to_delivered {
            return;
        }
        let until = if self.has_moves { now } else { record.first_seen.unwrap_or(now) };
        // A request that moves meets what is there then.
        let may_lack_routes = self.has_moves && self.versions.lacks_routes(since, now);
        if let Err(what) = self.versions.check(head, since, until, may_lack_routes) {
            self.violate(format!("{id:016x}: {what}"));
        }
    }

    /// A promise was broken.
    pub fn violate(&mut self, what: String) {
        self.violations.push(what);
    }

    /// The promises that were broken.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// The plan of a request.
    #[must_use]
    pub fn plan(&self, id: u64) -> Option<&RequestPlan> {
        self.requests.get(&id).map(|record| &record.plan)
    }

    /// Rules may have `retry`, on all that it is for but methods that are not idempotent.
    pub(crate) const fn allow_retries(&mut self) {
        self.may_retry_answers = true;
    }

    /// Whether a client that is relayed may end before it has sent everything.
    pub(crate) fn may_leave_early(&self, id: u64) -> bool {
        self.plan(id).is_some_and(|plan| plan.connection == Some("close"))
    }

    /// A relayed service ends without close_notify before it has sent everything. Strait takes that
    /// for an end, since many protocols that are relayed have ends of their own.
    pub(crate) fn may_break_off(&mut self, id: u64) {
        if let Some(record) = self.requests.get_mut(&id) {
            record.may_break_off = true;
        }
    }

    /// Whether the service of this request did so.
    pub(crate) fn has_broken_off(&self, id: u64) -> bool {
        self.requests.get(&id).is_some_and(|record| record.may_break_off)
    }

    /// A service saw a request's head on `end`.
    pub fn saw(&mut self, id: u64, end: EndId, network: &Network) {
        self.see(id, end, None, network);
    }

    /// A service saw a request's head on a stream of `end`. Whether others came on the connection
    /// before it is known to Strait only, and what is sent on it may be for others.
    pub(crate) fn saw_stream(&mut self, id: u64, end: EndId, network: &Network) {
        self.see(id, end, Some(u64::MAX), network);
    }

    /// The answer to what was seen last is there once so many bytes were read on its connection.
    pub(crate) fn answered_at(&mut self, id: u64, bytes: u64) {
        if let Some(last) = self.last_sighting(id) {
            last.answer_at = last.answer_at.min(bytes - 1);
        }
    }

    /// The service that saw the request last says that it did nothing about it.
    pub(crate) fn refused(&mut self, id: u64) {
        if let Some(last) = self.last_sighting(id) {
            last.is_unprocessed = true;
        }
    }

    fn last_sighting(&mut self, id: u64) -> Option<&mut Sighting> {
        let sees_copies = self.sees_copies;
        self.requests.get_mut(&id)?.seen(sees_copies).last_mut()
    }

    fn see(&mut self, id: u64, end: EndId, answer_at: Option<u64>, network: &Network) {
        let Some(record) = self.requests.get_mut(&id) else {
            return self.violate(format!("no request has the id {id:016x}"));
        };
        record.first_seen.get_or_insert_with(|| network.now());
        if let Some(address) = network.address(end) {
            let (since, until) = (record.began.unwrap_or_default(), network.now());
            if let Err(what) = self.versions.check_address(address, since, until) {
                self.violations.push(format!("{id:016x}: {what}"));
            }
        }
        let method = record.plan.method;
        let is_idempotent = !matches!(method, "POST" | RELAY);
        // A copy has no `retry`.
        let may_retry_answers = self.may_retry_answers && !self.sees_copies;
        let sightings = record.seen(self.sees_copies);
        for earlier in &*sightings {
            // The order in which services see attempts is not that in which Strait made them: what was
            // on its way on a connection that Strait gave up (its record was spoiled, or its key used up)
            // may arrive behind the answer to the attempt that followed it. No attempt is made on a
            // connection after its end, so what Strait had read by then is what counts (seed
            // 277767070553).
            let was_answered = network.read_by_other(earlier.end, end) > earlier.answer_at;
            // RFC 9110, section 9.2.2. Strait sends those with a body again after kept connections
            // only, but to a service, a connection that waited unused in the pool looks like a
            // fresh one.
            let is_safe = earlier.is_unprocessed || is_idempotent;
            if !is_safe || (was_answered && !may_retry_answers) {
                self.violations.push(format!(
                    "{method} {id:016x} was sent again, after {earlier:?} (answered: {was_answered})"
                ));
            }
        }
        let answer_at = answer_at.unwrap_or_else(|| network.written_total(end));
        sightings.push(Sighting { end, answer_at, is_unprocessed: false });
        let attempts_max = match may_retry_answers {
            true => RETRY_ATTEMPTS_MAX as usize,
            false => ATTEMPTS_MAX,
        };
        if sightings.len() > attempts_max {
            self.violations.push(format!("{id:016x} was sent {} times", sightings.len()));
        }
    }

    /// A request ended for its client.
    pub fn settle(&mut self, id: u64, outcome: Outcome) {
        let Some(record) = self.requests.get_mut(&id) else { return };
        if record.outcome == Outcome::Pending {
            record.outcome = outcome;
        }
    }

    /// How many requests ended how.
    #[must_use]
    pub fn outcomes(&self) -> BTreeMap<Outcome, usize> {
        let mut counts = BTreeMap::new();
        for record in self.requests.values() {
            *counts.entry(record.outcome).or_default() += 1;
        }
        counts
    }

    /// Requests that were sent more than once.
    #[must_use]
    pub fn retried(&self) -> usize {
        self.requests.values().filter(|record| record.sightings.len() > 1).count()
    }

    /// Adds a violation for each request whose outcome is bad.
    pub fn refuse_outcomes(&mut self, is_bad: impl Fn(Outcome) -> bool) {
        let bad = self.requests.iter().filter(|(_, record)| is_bad(record.outcome));
        self.violations.extend(bad.map(|(id, Record { outcome, plan, .. })| {
            format!("{id:016x} ended {outcome:?}: {plan:?}")
        }));
    }
}
