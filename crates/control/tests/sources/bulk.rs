//! A source that delivers thousands of resources at once.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use config::ResourceKind::{Cluster, Secret};
use config::reports::ReportBody;
use config::{ResourceKind, ResourceName, Update, Verdict};
use control::{ConfigFile, Outcome, Source};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::certificate::{SITE, SITE_KEY, TENANTS};
use crate::on_demand::next_said;
use crate::{Running, indented, loader, until};

const CONFIG: &str = "
listeners: [{ name: edge, address: '127.0.0.1:1', routes: all }]
routes: [{ name: all, rules: [{ match: { prefix: / }, respond: {} }] }]
";

/// More than control takes note of in a turn.
const CLUSTERS: usize = 3_000;

/// What became of each resource: its version, and whether that is accepted.
type Heard = BTreeMap<ResourceName, (Arc<str>, bool)>;

#[derive(Debug)]
struct Bulk {
    says: UnboundedReceiver<Vec<Update>>,
    heard: Arc<Mutex<Heard>>,
}

impl Source for Bulk {
    fn name(&self) -> &'static str {
        "registry"
    }

    fn subscribe(&mut self, _: &[ResourceName]) {}

    fn unsubscribe(&mut self, _: &[ResourceName]) {}

    fn on_restored(&mut self, _: &[Update]) {}

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Vec<Update>> + Send + '_>> {
        Box::pin(next_said(&mut self.says))
    }

    fn on_verdict(&mut self, verdict: &Verdict) {
        let is_accepted = verdict.refused.is_none() && verdict.waits_for.is_empty();
        let said = (Arc::clone(&verdict.version), is_accepted);
        self.heard.lock().unwrap().insert(verdict.name.clone(), said);
    }
}

struct Registry {
    running: Running,
    says: UnboundedSender<Vec<Update>>,
    heard: Arc<Mutex<Heard>>,
}

impl Registry {
    fn start() -> Self {
        let (says, receiver) = unbounded_channel();
        let heard = Arc::default();
        let source = Bulk { says: receiver, heard: Arc::clone(&heard) };
        let config = ConfigFile::fixed("test", CONFIG.to_owned(), loader());
        let running = Running::start_with(config, vec![Box::new(source)]);
        running.report(0, ReportBody::Started);
        running.report(1, ReportBody::Started);
        Self { running, says, heard }
    }

    /// Waits until so many clusters of this version are accepted, or not.
    fn hears(&self, version: &str, is_accepted: bool) {
        let is_it = |(name, (of, is)): &(&ResourceName, &(Arc<str>, bool))| {
            name.kind == Cluster && **of == *version && *is == is_accepted
        };
        let count = || self.heard.lock().unwrap().iter().filter(is_it).count();
        until(&format!("{version} {is_accepted}, of {}", count()), || count() == CLUSTERS);
    }
}

fn update(kind: ResourceKind, name: &str, version: &str, content: String) -> Update {
    Update { kind, name: name.into(), version: version.into(), content: Some(content.into()) }
}

fn trust(version: &str, content: &str) -> Vec<Update> {
    vec![update(Secret, "trust", version, format!("name: trust\n{content}"))]
}

#[test]
fn all_of_a_large_delivery_is_heard_and_so_is_what_becomes_of_it_later() {
    let registry = Registry::start();
    let clusters = (0..CLUSTERS).map(|number| {
        let name = format!("c{number}");
        let address = format!("10.0.{}.{}:443", number / 250, number % 250 + 1);
        let text =
            format!("{{ name: {name}, endpoints: ['{address}'], tls: {{ ca: 'secret:trust' }} }}");
        update(Cluster, &name, "1", text)
    });
    let good = format!("ca: |\n  {}\n", indented(TENANTS));
    let all = trust("1", &good).into_iter().chain(clusters).collect();
    registry.says.send(all).unwrap();
    registry.hears("1", true);
    let shown = registry.running.ask("GET", "/sources");
    assert!(shown.contains(&format!("\"accepted\": {}", CLUSTERS + 1)), "{shown}");
    // It is good in itself, and no longer what they need.
    let other = format!("chain: |\n  {}\nkey: |\n  {}\n", indented(SITE), indented(SITE_KEY));
    registry.says.send(trust("2", &other)).unwrap();
    registry.hears("1", false);
    let shown = registry.running.ask("GET", "/sources");
    assert!(shown.contains(&CLUSTERS.to_string()), "{shown}");
    registry.says.send(trust("3", &good)).unwrap();
    registry.hears("1", true);
    assert_eq!(registry.running.end(), Outcome::Drained);
}
