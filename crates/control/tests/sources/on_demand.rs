//! A source that is asked for clusters once a request needs them.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use config::reports::{ON_DEMAND_TOPIC, Question, ReportBody};
use config::{ResourceKind, ResourceName, Update, Verdict};
use control::{ConfigFile, Outcome, Source};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{Running, loader, until};

const CONFIG: &str = "
listeners:
  - { name: edge, address: '127.0.0.1:1', routes: all }
routes:
  - name: all
    rules:
      - { match: { prefix: /a/ }, cluster: a }
      - { match: { prefix: /b/ }, cluster: b }
      - { match: { prefix: / }, cluster: c }
resolvers: { on_demand_timeout: TIMEOUT }
";

/// Delivers what the test says, and notes what it is asked for.
#[derive(Debug)]
struct Asked {
    says: UnboundedReceiver<Vec<Update>>,
    wanted: Arc<Mutex<BTreeSet<String>>>,
}

impl Source for Asked {
    fn name(&self) -> &'static str {
        "registry"
    }

    fn is_on_demand(&self) -> bool {
        true
    }

    fn subscribe(&mut self, names: &[ResourceName]) {
        self.wanted.lock().unwrap().extend(names.iter().map(ToString::to_string));
    }

    fn unsubscribe(&mut self, names: &[ResourceName]) {
        let mut wanted = self.wanted.lock().unwrap();
        names.iter().for_each(|name| assert!(wanted.remove(&name.to_string())));
    }

    fn on_restored(&mut self, _: &[Update]) {}

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Vec<Update>> + Send + '_>> {
        Box::pin(next_said(&mut self.says))
    }

    fn on_verdict(&mut self, _: &Verdict) {}
}

/// What a test has a source say next.
pub(crate) async fn next_said(says: &mut UnboundedReceiver<Vec<Update>>) -> Vec<Update> {
    match says.recv().await {
        Some(updates) => updates,
        None => std::future::pending().await,
    }
}

struct Registry {
    running: Running,
    says: UnboundedSender<Vec<Update>>,
    wanted: Arc<Mutex<BTreeSet<String>>>,
}

impl Registry {
    fn start(timeout: &str) -> Self {
        let (says, receiver) = unbounded_channel();
        let wanted = Arc::default();
        let source = Asked { says: receiver, wanted: Arc::clone(&wanted) };
        let text = CONFIG.replace("TIMEOUT", timeout);
        let config = ConfigFile::fixed("test", text, loader());
        let running = Running::start_with(config, vec![Box::new(source)]);
        running.report(0, ReportBody::Started);
        running.report(1, ReportBody::Started);
        Self { running, says, wanted }
    }

    /// An exchange of the first worker needs a cluster.
    fn needs(&self, asker: u32, cluster: &str) {
        let payload = cluster.as_bytes().into();
        let question = Question { topic: ON_DEMAND_TOPIC.into(), payload };
        self.running.report(0, ReportBody::Question { exchange: asker, question });
    }

    fn says(&self, updates: &[(&str, &str, Option<&str>)]) {
        let update = |(name, version, content): &(&str, &str, Option<&str>)| {
            let (kind, content) = (ResourceKind::Cluster, content.map(Into::into));
            Update { kind, name: (*name).into(), version: (*version).into(), content }
        };
        self.says.send(updates.iter().map(update).collect()).unwrap();
    }

    fn wants(&self, names: &str) {
        let wanted = || self.wanted.lock().unwrap().iter().cloned().collect::<Vec<_>>().join(" ");
        until(&format!("{names}; it wants {}", wanted()), || wanted() == names);
    }

    fn answers(&self, asker: u32) -> Vec<String> {
        let noted = self.running.noted.lock().unwrap();
        let start = format!("{asker} on 0: ");
        noted.iter().filter_map(|it| it.strip_prefix(&start)).map(str::to_owned).collect()
    }
}

#[test]
fn a_cluster_is_asked_for_by_the_first_request_and_answers_all_that_wait() {
    let registry = Registry::start("1h");
    registry.needs(1, "a");
    registry.wants("cluster/a");
    registry.needs(2, "a");
    registry.needs(3, "b");
    registry.wants("cluster/a cluster/b");
    let sources = registry.running.ask("GET", "/sources");
    let shown = "\"on_demand\": {\n    \"asked\": 2,\n    \"waiting\": 3\n  }";
    assert!(sources.contains(shown), "{sources}");
    registry.says(&[("a", "1", Some("{ name: a, endpoints: ['10.0.0.1:80'] }"))]);
    until("both", || registry.answers(1) == [""] && registry.answers(2) == [""]);
    assert!(registry.answers(3).is_empty());
    // Workers have the cluster before the answer.
    let noted = registry.running.noted.lock().unwrap().clone();
    let place = |text: &str| noted.iter().position(|it| it == text);
    assert!(place("version 2, 0 listeners removed").unwrap() < place("1 on 0: ").unwrap());
    // One whose worker has not taken it up yet.
    registry.needs(4, "a");
    until("at once", || registry.answers(4) == [""]);
    assert_eq!(registry.running.end(), Outcome::Drained);
}

#[test]
fn what_no_source_has_or_is_refused_is_answered_at_once_until_it_comes() {
    let registry = Registry::start("1h");
    registry.needs(1, "a");
    registry.wants("cluster/a");
    registry.says(&[("a", "1", None)]);
    let gone = "registry has no cluster a";
    until("that", || registry.answers(1) == [gone]);
    registry.needs(2, "a");
    until("that", || registry.answers(2) == [gone]);
    registry.needs(3, "b");
    registry.wants("cluster/a cluster/b");
    registry.says(&[("b", "7", Some("{ name: b, endpoints: ['10.0.0.1:0'] }"))]);
    until("that", || registry.answers(3) == ["version 7 of it by registry is refused"]);
    // It is followed on.
    registry.says(&[("a", "2", Some("{ name: a, endpoints: ['10.0.0.1:80'] }"))]);
    registry.running.wait_for("version 2, 0 listeners removed");
    registry.needs(4, "a");
    until("it", || registry.answers(4) == [""]);
    registry.says(&[("a", "3", None)]);
    registry.running.wait_for("version 3, 0 listeners removed");
    until("that", || {
        registry.needs(5, "a");
        registry.answers(5).contains(&gone.to_owned())
    });
    registry.needs(6, "x");
    until("that", || registry.answers(6) == ["nothing leads to the cluster x any more"]);
    registry.wants("cluster/a cluster/b");
    assert_eq!(registry.running.end(), Outcome::Drained);
}

#[test]
fn requests_that_wait_have_a_bound_and_those_that_left_make_room() {
    let registry = Registry::start("2s");
    for _ in 0..10_000 {
        registry.needs(1, "c");
    }
    registry.needs(2, "c");
    until("the bound", || registry.answers(2) == ["10000 requests wait for clusters"]);
    let none = "\"asked\": 1,\n    \"waiting\": 0\n";
    until("their end", || registry.running.ask("GET", "/sources").contains(none));
    assert!(registry.answers(1).is_empty(), "the worker has ended them");
    registry.needs(3, "c");
    registry.says(&[("c", "1", Some("{ name: c, endpoints: ['10.0.0.1:80'] }"))]);
    until("it", || registry.answers(3) == [""]);
    let metrics = registry.running.ask("GET", "/metrics");
    for (outcome, count) in [("found", 1), ("missing", 0), ("expired", 10_000), ("overflow", 1)] {
        let line = format!("strait_on_demand_requests_total{{outcome=\"{outcome}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    assert_eq!(registry.running.end(), Outcome::Drained);
}
