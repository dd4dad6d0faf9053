//! The parameters of a run.

use crate::faults::{Faults, ServiceFaults};
use crate::random::Random;

/// Workers of a process, at most.
pub(super) const WORKERS_MAX: usize = 4;

/// The parameters of a run. All of it follows from the seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where all random numbers begin.
    pub seed: u64,
    /// Workers.
    pub workers: usize,
    /// Clients.
    pub clients: usize,
    /// How the network and the clock behave.
    pub faults: Faults,
    /// How services behave.
    pub service_faults: ServiceFaults,
    /// Configurations after the first.
    pub swaps: usize,
    /// Connections that move to another worker, or out of one and into it again.
    pub moves: usize,
    /// How often another process takes the place of the one that runs.
    pub handovers: usize,
    /// Whether new processes may give everything back in their probation.
    pub has_returns: bool,
    /// Connections of a group that move in a turn.
    pub group_part_max: usize,
    /// Whether the workers drain in the middle of it.
    pub drains: bool,
    /// Times at which the process is near its bound on memory.
    pub memory_shortages: usize,
    /// Whether every request has to be answered.
    pub is_strict: bool,
    /// Whether some clients and services speak HTTP/2.
    pub has_http2: bool,
    /// Whether some clients and services speak TLS.
    pub has_tls: bool,
    /// Whether some clients and services speak an RPC protocol.
    pub has_calls: bool,
    /// Whether requests are copied to services of their own.
    pub has_mirrors: bool,
    /// Whether clusters check their endpoints.
    pub has_checks: bool,
    /// Whether a cluster comes once a request needs it.
    pub has_demands: bool,
    /// How often a source delivers resources of all kinds, after the first time; none if there is no such source.
    pub deliveries: Option<usize>,
    /// How often DNS is asked for the endpoints of a cluster, after the first time; none if no cluster has them from there.
    pub resolutions: Option<usize>,
}

impl Scenario {
    /// The scenario of a seed: in some nothing is at fault, and everything has to be answered.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed).split("scenario", 0);
        if random.chance(300) { Self::harmless(seed) } else { Self::chaos(seed) }
    }

    /// Whether requests may wait for control: for a cluster on demand, or for the first checks of endpoints.
    pub(super) const fn may_wait_for_control(&self) -> bool {
        self.has_demands || self.has_checks
    }

    /// Delays, pieces and new configurations, and nothing that could cost a response.
    #[must_use]
    pub fn harmless(seed: u64) -> Self {
        let mut random = Random::new(seed).split("harmless", 0);
        Self {
            seed,
            workers: random.length_between(1, WORKERS_MAX),
            clients: random.length_between(1, 20),
            faults: Faults::harmless(&mut random),
            service_faults: ServiceFaults::default(),
            swaps: random.length_below(8),
            moves: if random.chance(500) { random.length_below(200) } else { 0 },
            handovers: if Random::new(seed).split("handovers", 0).chance(300) {
                Random::new(seed).split("handovers", 1).length_between(1, 4)
            } else {
                0
            },
            has_returns: Random::new(seed).split("returns", 0).chance(400),
            group_part_max: Random::new(seed).split("group parts", 0).length_between(1, 8),
            drains: false,
            memory_shortages: 0,
            is_strict: true,
            has_http2: true,
            has_tls: Random::new(seed).split("tls", 0).chance(500),
            has_calls: Random::new(seed).split("calls", 0).chance(300),
            has_mirrors: Random::new(seed).split("mirrors", 0).chance(300),
            has_checks: Random::new(seed).split("checks", 0).chance(300),
            has_demands: Random::new(seed).split("demands", 0).chance(200),
            deliveries: Random::new(seed)
                .split("deliveries", 0)
                .chance(250)
                .then(|| Random::new(seed).split("deliveries", 1).length_between(1, 30)),
            resolutions: Random::new(seed)
                .split("resolutions", 0)
                .chance(250)
                .then(|| Random::new(seed).split("resolutions", 1).length_between(1, 40)),
        }
    }

    /// Everything that can go wrong, in some mixture.
    #[must_use]
    pub fn chaos(seed: u64) -> Self {
        let mut random = Random::new(seed).split("chaos", 0);
        let mut scenario = Self {
            workers: random.length_between(1, WORKERS_MAX),
            clients: random.length_between(1, 25),
            faults: Faults::chaos(&mut random),
            service_faults: ServiceFaults::chaos(&mut random),
            swaps: random.length_below(8),
            moves: if random.chance(500) { random.length_below(200) } else { 0 },
            drains: random.chance(200),
            ..Self::harmless(seed)
        };
        scenario.is_strict = false;
        let mut memory = Random::new(seed).split("memory", 0);
        scenario.memory_shortages =
            if memory.chance(200) { memory.length_between(1, 4) } else { 0 };
        scenario
    }
}
