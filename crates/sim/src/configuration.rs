//! The configurations of a simulation, and what control does with them.

mod text;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::snapshot::{Address, DnsAnswer, DnsName, Id};
use config::{
    FilterKinds, Loader, Prepared, PreparedUpdates, ResourceKind, ResourceName, Update, Verdict,
};
use proxy::Snapshot;
use proxy::filter::Filter;
use proxy::time::Time;
use telemetry::events::LabelId;
use telemetry::{Names, RouteNames};

use crate::delivered::{Planned, SOURCE, Source, Taken, Waiting};
use crate::named::{self, Answers, Dns};
use crate::random::Random;
use crate::simulation::Scenario;
use crate::versions::Served;

/// The clusters that clients know.
pub(crate) const CLUSTERS: [&str; 2] = ["alpha", "beta"];

/// The one of these that may come on demand.
pub(crate) const ON_DEMAND: &str = "beta";

/// Addresses of each cluster.
pub(crate) const ENDPOINTS: u8 = 3;

/// The listener that every configuration has.
pub(crate) const EDGE: &str = "10.0.0.1:80";

/// The listener that only some configurations have.
pub(crate) const SIDE: &str = "10.0.0.1:81";

/// The listener whose connections are relayed.
pub(crate) const RELAY_EDGE: &str = "10.0.0.1:82";

/// The listener that relays what is no HTTP.
pub(crate) const MIXED: &str = "10.0.0.1:83";

/// The listener for calls of RPC.
pub(crate) const CALLS: &str = "10.0.0.1:84";

/// The cluster that connections are relayed to. Its services come behind those of [`CLUSTERS`].
const RAW: &str = "raw";

/// A time at which the delivered certificates are valid, seconds since the Unix epoch.
const CERTIFICATES_VALID_AT: u64 = 1_800_000_000;

/// How long the timeouts of a simulation's configurations are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// The defaults, and more: nothing ends because of a timeout.
    Long,
    /// A few seconds for everything.
    Short,
}

/// The host that clients ask for.
pub(crate) const HOST: &str = "sim.example";

/// The host that an endpoint may have.
#[must_use]
pub(crate) fn host_of(address: SocketAddr) -> String {
    format!("{}.example", address.ip().to_string().replace('.', "-"))
}

fn new_loader(scenario: &Scenario) -> Loader<Box<dyn Filter>> {
    let mut kinds = FilterKinds::new();
    crate::filter::register(&mut kinds);
    kinds.register_protocol(&crate::pico::Pico);
    let mut loader = Loader::new(kinds).expect("the schema is one that the loader understands");
    if scenario.has_demands || scenario.deliveries.is_some() {
        loader.expect_sources();
    }
    if scenario.has_demands {
        loader.expect_demands();
    }
    loader
}

/// The address of an endpoint.
#[must_use]
pub(crate) fn endpoint(cluster: usize, place: u8) -> SocketAddr {
    let cluster = u8::try_from(cluster).expect("there are few clusters");
    SocketAddr::from(([10, 1, cluster, place], 9000))
}

/// An address as configurations have it.
///
/// # Panics
///
/// If it is none.
#[must_use]
pub(crate) fn address(text: &str) -> Address {
    Address::Tcp(text.parse().expect("an address of this file"))
}

/// One configuration after the other.
#[derive(Debug)]
pub struct Configurations {
    scenario: Scenario,
    loading: Loading,
    random: Random,
    patience: Patience,
    /// Which clusters speak HTTP/2.
    speak_http2: [bool; CLUSTERS.len()],
    /// Whether rules may have `retry`.
    pub(crate) has_retries: bool,
    /// Whether clusters may eject endpoints.
    has_outliers: bool,
    /// What decides where endpoints are, and whether that counts.
    localities: Random,
    /// What decides about second attempts beside the first.
    hedges: Random,
    /// What decides which requests have high priority, and what of a cluster these may use.
    priorities: Random,
    /// What decides about calls of RPC, if there are any.
    calls: Option<Random>,
    /// What decides about copies of requests, if there are any.
    mirrors: Option<Random>,
    /// What decides about health checks, if there are any.
    checks: Option<Random>,
    /// What DNS says of the endpoints of a cluster, if one has them from there.
    dns: Option<Dns>,
    /// Whether these endpoints speak HTTP/2.
    named_speaks_http2: bool,
    /// Whether the last of [`CLUSTERS`] comes from a source that is asked for it on demand.
    has_demands: bool,
    /// What comes from a source that delivers resources of all kinds, if there is one.
    source: Option<Source>,
    /// How long what that delivers waits for what it names.
    initial_fetch_timeout: &'static str,
    /// Versions that the former has delivered.
    deliveries: u64,
    /// What that has delivered last.
    delivered: Option<String>,
    /// The latest text.
    latest: String,
    /// Bytes of a body that some filter gathered at most, so far.
    pub(crate) gathered_bytes_max: usize,
}

impl Configurations {
    /// None yet.
    ///
    /// # Panics
    ///
    /// If no configuration can be read at all.
    #[must_use]
    pub fn new(random: Random, scenario: &Scenario) -> Self {
        let patience = if scenario.is_strict { Patience::Long } else { Patience::Short };
        let mut protocols = random.split("protocols", 0);
        let speak_http2 = CLUSTERS.map(|_| scenario.has_http2 && protocols.chance(500));
        let has_retries = random.split("retries", 0).chance(400);
        let has_outliers = random.split("outliers", 0).chance(400);
        let localities = random.split("localities", 0);
        let hedges = random.split("hedges", 0);
        let priorities = random.split("priorities", 0);
        let calls = scenario.has_calls.then(|| random.split("calls", 0));
        let mirrors = scenario.has_mirrors.then(|| random.split("mirrors", 0));
        let checks = scenario.has_checks.then(|| random.split("checks", 0));
        let dns = scenario.resolutions.map(|_| {
            let cluster = named_cluster(scenario);
            let addresses = (0..ENDPOINTS).map(|place| endpoint(cluster, place)).collect();
            Dns::new(random.split("names", 0), scenario.is_strict, addresses)
        });
        let named_speaks_http2 = scenario.has_http2 && random.split("names", 1).chance(500);
        let random_of = || random.split("deliveries", 0);
        let source = scenario.deliveries.map(|_| {
            let endpoints = (0..ENDPOINTS).map(|place| endpoint(0, place)).collect();
            Source::new(random_of(), scenario.is_strict, endpoints, speak_http2[0])
        });
        // Without limit where no request may fail for it.
        let timeouts: &[_] =
            if scenario.is_strict { &["0s"] } else { &["0s", "100ms", "1s", "3s"] };
        let initial_fetch_timeout = random.split("initial fetch", 0).pick(timeouts);
        Self {
            scenario: scenario.clone(),
            loading: Loading::new(scenario, Answers::default()),
            random,
            patience,
            speak_http2,
            has_retries,
            has_outliers,
            localities,
            hedges,
            priorities,
            calls,
            mirrors,
            checks,
            dns,
            named_speaks_http2,
            has_demands: scenario.has_demands,
            source,
            initial_fetch_timeout,
            deliveries: 0,
            delivered: None,
            latest: String::new(),
            gathered_bytes_max: 0,
        }
    }

    /// Another configuration: with other endpoints, bounds and timeouts, and with random changes
    /// that do not concern the connections.
    ///
    /// # Panics
    ///
    /// If the loader refuses it.
    pub fn another(&mut self) -> Arc<Snapshot> {
        let text = self.text();
        self.load(&text)
    }

    /// The next configuration once the source has delivered its cluster; none if that changes nothing.
    ///
    /// # Panics
    ///
    /// If the loader refuses it.
    pub(crate) fn deliver(&mut self) -> Option<Arc<Snapshot>> {
        let number = CLUSTERS.iter().position(|cluster| *cluster == ON_DEMAND);
        let mut text = String::new();
        self.cluster(ON_DEMAND, number.expect("it is one of them"), &mut text);
        // An entry of a list, in which it stands.
        let lines = text.lines().map(|line| line.get(4..).expect("it is indented"));
        let content = lines.map(|line| format!("{line}\n")).collect::<String>();
        self.update(Some(content))
    }

    /// The next configuration once the source has taken its cluster back; none if that changes nothing.
    ///
    /// # Panics
    ///
    /// If the loader refuses it.
    pub(crate) fn take_back(&mut self) -> Option<Arc<Snapshot>> {
        self.update(None)
    }

    /// The latest text once more, for a process that has not read it yet.
    ///
    /// # Panics
    ///
    /// If the loader refuses it.
    pub(crate) fn latest_again(&mut self) -> Arc<Snapshot> {
        let text = self.latest.clone();
        self.load(&text)
    }

    /// What another process has after it has read the latest text and heard from the sources, and the first snapshot. Host names
    /// stand there for what this one was answered, and waits that ended here end there before it serves.
    ///
    /// # Panics
    ///
    /// If the loader refuses it.
    pub(crate) fn begin_again(&mut self, now: Time) -> (Loading, Arc<Snapshot>) {
        let new = Loading::new(&self.scenario, self.loading.answers.clone());
        let former = self.swap_loading(new);
        let text = self.latest.clone();
        let mut snapshot = self.load(&text);
        if let Some(content) = self.delivered.clone() {
            snapshot = self.update(Some(content)).unwrap_or(snapshot);
        }
        if self.source.is_some() {
            let [first, later] = former.taken.again();
            snapshot = self.take_again(first, now).unwrap_or(snapshot);
            let is_over = |name: &ResourceName| former.taken.serves(name);
            snapshot = self.end_waits_again(is_over, now).unwrap_or(snapshot);
            snapshot = self.take_again(later, now).unwrap_or(snapshot);
            let is_over = |name: &ResourceName| !former.taken.waits(name);
            snapshot = self.end_waits_again(is_over, now).unwrap_or(snapshot);
            self.loading.taken = former.taken.clone();
            self.loading.check_deliveries();
        }
        (self.swap_loading(former), snapshot)
    }

    fn take_again(&mut self, updates: Vec<Update>, now: Time) -> Option<Arc<Snapshot>> {
        let Took { verdicts, snapshot, .. } = self.take(SOURCE, updates, now);
        let refused = verdicts.iter().find(|verdict| verdict.refused.is_some());
        assert!(refused.is_none(), "refused: {refused:?}");
        snapshot
    }

    fn end_waits_again(
        &mut self,
        is_over: impl Fn(&ResourceName) -> bool,
        now: Time,
    ) -> Option<Arc<Snapshot>> {
        let waiting = self.loading.loader.waiting().map(|(name, _)| name);
        let over: BTreeSet<_> = waiting.filter(|name| is_over(name)).cloned().collect();
        self.wait_no_longer(&over, now).snapshot
    }

    /// Goes on with what another process has; returns what the one before had.
    pub(crate) const fn swap_loading(&mut self, loading: Loading) -> Loading {
        std::mem::replace(&mut self.loading, loading)
    }

    fn update(&mut self, content: Option<String>) -> Option<Arc<Snapshot>> {
        self.deliveries += 1;
        self.delivered.clone_from(&content);
        let update = Update {
            kind: ResourceKind::Cluster,
            name: ON_DEMAND.into(),
            version: self.deliveries.to_string().into(),
            content: content.map(Into::into),
        };
        let Took { verdicts, late, snapshot } = self.take("source", vec![update], Time::default());
        let mut refused = verdicts.iter().filter_map(|verdict| verdict.refused.as_ref());
        assert!(refused.next().is_none() && late.is_empty(), "refused: {verdicts:?}, {late:?}");
        snapshot
    }

    /// The first configuration, once the source of all kinds of resources has delivered.
    pub(crate) fn begin_deliveries(&mut self, now: Time) -> Option<Arc<Snapshot>> {
        let planned = self.source.as_mut()?.first();
        self.take_of_all_kinds(planned, now)
    }

    /// The next configuration once that source has delivered something; none if that changes nothing.
    pub(crate) fn deliver_of_all_kinds(&mut self, now: Time) -> Option<Arc<Snapshot>> {
        let planned = self.source.as_mut()?.next();
        self.take_of_all_kinds(planned, now)
    }

    /// The same once a process has heard what it missed while another one heard it.
    pub(crate) fn deliver_missed(&mut self, now: Time) -> Option<Arc<Snapshot>> {
        let planned = self.source.as_ref()?.missed(&self.loading.taken);
        self.take_of_all_kinds(planned, now)
    }

    /// Whether there is something that this process has not heard.
    pub(crate) fn has_missed(&self) -> bool {
        self.source.as_ref().is_some_and(|it| !it.missed(&self.loading.taken).is_empty())
    }

    fn take_of_all_kinds(&mut self, planned: Vec<Planned>, now: Time) -> Option<Arc<Snapshot>> {
        let updates = planned.iter().map(Planned::update).collect();
        let Took { verdicts, late, snapshot } = self.take(SOURCE, updates, now);
        self.loading.taken.on_verdicts(planned, &verdicts, &late);
        self.loading.check_deliveries();
        snapshot
    }

    /// The next configuration once what has waited for too long waits no longer; none if that changes nothing.
    pub(crate) fn end_waits(&mut self, now: Time) -> Option<Arc<Snapshot>> {
        let timeout = self.initial_fetch_timeout()?;
        let over = self.loading.waiting.late(timeout, now);
        if over.is_empty() {
            return None;
        }
        let Took { late, snapshot, .. } = self.wait_no_longer(&over, now);
        self.loading.taken.on_waited(&over, &late);
        self.loading.check_deliveries();
        snapshot
    }

    /// How long what a source delivers may wait; zero for as long as it takes.
    pub(crate) fn initial_fetch_timeout(&self) -> Option<Duration> {
        let latest = self.loading.loader.snapshot_latest().filter(|_| self.source.is_some())?;
        Some(latest.resolvers.initial_fetch_timeout)
    }

    fn wait_no_longer(&mut self, names: &BTreeSet<ResourceName>, now: Time) -> Took {
        let outside = config::outside::Memory::new(CERTIFICATES_VALID_AT);
        let updates = self.loading.loader.prepare_waited(names, &[], &outside);
        self.took(updates, now)
    }

    /// How many waits have ended, so that something served without what it named, or was refused for that.
    pub(crate) const fn waited(&self) -> (usize, usize) {
        (self.loading.taken.served_without, self.loading.taken.refused_late)
    }

    /// What serves by the latest configuration, as far as that is checked.
    pub(crate) fn served(&self) -> Option<Served> {
        if self.source.is_none() && self.dns.is_none() {
            return None;
        }
        let mut served = self.loading.taken.served();
        if let Some(snapshot) = self.loading.loader.snapshot_latest() {
            served.named = self.loading.answers.endpoints(snapshot);
        }
        Some(served)
    }

    fn take(&mut self, source: &str, updates: Vec<Update>, now: Time) -> Took {
        let outside = config::outside::Memory::new(CERTIFICATES_VALID_AT);
        let updates = self.loading.loader.prepare_updates(&source.into(), updates, &[], &outside);
        self.took(updates, now)
    }

    fn took(&mut self, updates: PreparedUpdates<Box<dyn Filter>>, now: Time) -> Took {
        let PreparedUpdates { prepared, verdicts, late, waits, .. } = updates;
        self.loading.waiting.note(waits, now);
        Took { verdicts, late, snapshot: self.keep(prepared) }
    }

    /// Has DNS asked for each name once. Returns whether some name stands for something else now, which is noted.
    pub(crate) fn resolve(&mut self) -> bool {
        let Some(dns) = &mut self.dns else { return false };
        let followed = self.loading.loader.snapshot_latest().map(|it| named::followed(it));
        let mut is_new = false;
        for name in followed.unwrap_or_default() {
            if let Some(answer) = dns.ask(&name) {
                is_new |= self.loading.note(&name, answer);
            }
        }
        is_new
    }

    /// The next configuration, with what was noted; none if that changes nothing.
    pub(crate) fn link_noted(&mut self) -> Option<Arc<Snapshot>> {
        let prepared = self.loading.loader.prepare_noted();
        self.keep(prepared)
    }

    /// The configuration of this text.
    ///
    /// # Panics
    ///
    /// If the loader refuses it.
    pub fn load(&mut self, text: &str) -> Arc<Snapshot> {
        text.clone_into(&mut self.latest);
        let mut prepared = self.loading.prepare(text);
        let unanswered = prepared.unanswered().to_vec();
        if self.answer_first(&unanswered) {
            prepared = self.loading.prepare(text);
        }
        self.keep(Some(prepared)).expect("it was prepared")
    }

    /// Waits for the first answers of names. Returns whether there are some.
    fn answer_first(&mut self, unanswered: &[Arc<DnsName>]) -> bool {
        let Some(dns) = &mut self.dns else { return false };
        let mut is_new = false;
        for name in unanswered {
            let handed = self.loading.handed.of(name).cloned();
            if let Some(answer) = handed.or_else(|| dns.ask_first(name)) {
                is_new |= self.loading.note(name, answer);
            }
        }
        is_new
    }

    /// Lets what was prepared count, if anything was: all that was noted before does.
    fn keep(&mut self, prepared: Option<Prepared<Box<dyn Filter>>>) -> Option<Arc<Snapshot>> {
        let Loading { loader, answers, .. } = &mut self.loading;
        let kept = prepared.map(|prepared| loader.keep(prepared));
        if self.dns.is_some()
            && let Some(snapshot) = loader.snapshot_latest().cloned()
        {
            let gone = answers.keep(&named::followed(&snapshot));
            loader.note_answers(gone.into_iter().map(|name| (name, None)).collect());
            answers.check(&snapshot);
        }
        kept
    }
}

/// What one process has made of the texts, and of what sources say.
#[derive(Debug)]
pub(crate) struct Loading {
    loader: Loader<Box<dyn Filter>>,
    answers: Answers,
    /// What another process was answered, whose place this one takes.
    handed: Answers,
    /// What the source of all kinds of resources said.
    taken: Taken,
    waiting: Waiting,
}

/// What became of updates.
struct Took {
    verdicts: Vec<Verdict>,
    late: Vec<(Arc<str>, Verdict)>,
    snapshot: Option<Arc<Snapshot>>,
}

impl Loading {
    fn new(scenario: &Scenario, handed: Answers) -> Self {
        Self {
            loader: new_loader(scenario),
            answers: Answers::default(),
            handed,
            taken: Taken::default(),
            waiting: Waiting::default(),
        }
    }

    /// What sources have delivered has the consequences that it should.
    fn check_deliveries(&self) {
        if let Some(snapshot) = self.loader.snapshot_latest() {
            self.taken.check(self.loader.waiting(), snapshot);
        }
    }

    fn prepare(&self, text: &str) -> Prepared<Box<dyn Filter>> {
        let outside = config::outside::Memory::new(CERTIFICATES_VALID_AT);
        match self.loader.prepare("sim.yaml", text, &outside) {
            Ok(prepared) => prepared,
            Err(errors) => panic!("{errors}\n{text}"),
        }
    }

    /// Returns whether it is another answer than before.
    fn note(&mut self, name: &Arc<DnsName>, answer: DnsAnswer) -> bool {
        let is_new = self.answers.note(name, &answer);
        if is_new {
            self.loader.note_answers(vec![(Arc::clone(name), Some(answer))]);
        }
        is_new
    }
}

/// The number of the cluster that has its endpoints from DNS: its services come behind all others.
#[must_use]
pub(crate) fn named_cluster(scenario: &Scenario) -> usize {
    CLUSTERS.len() + 1 + usize::from(scenario.has_calls) + usize::from(scenario.has_mirrors)
}

/// The label under which workers count for what has this id.
#[must_use]
pub const fn label(id: Id) -> LabelId {
    LabelId { slot: id.slot, generation: id.generation }
}

/// The names of everything in a snapshot.
#[must_use]
pub fn names(snapshot: &Snapshot) -> Arc<Names> {
    let mut names = Names::default();
    for listener in &snapshot.listeners {
        names.insert_listener(label(listener.id.0), Arc::clone(&listener.name));
    }
    for (id, table) in snapshot.route_tables.iter() {
        let rules = table.rules.iter();
        let rules = rules.map(|rule| (rule.slot.number(), rule.path.text.to_string()));
        names.insert_route(label(id), RouteNames::new(Arc::clone(&table.name), rules, []));
    }
    for (id, cluster) in snapshot.clusters.iter() {
        names.insert_cluster(label(id), Arc::clone(&cluster.name));
    }
    Arc::new(names)
}
