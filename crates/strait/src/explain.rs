//! `strait explain`: the listener, route and cluster of a request, and why.
//!
//! The functions that carry traffic decode, filter and route the request, and each step is printed.
//! In the end a whole worker's state takes the request's bytes, and does what a running process would
//! do, except that nothing is sent.

mod client;
mod cluster;
mod listener;
mod live;
mod request;
mod rules;
mod shares;
mod tls;
mod trial;

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use ::tls::Certificate;
use config::Outside as _;
use config::snapshot::{ClusterId, EndpointId, Listener as ListenerConfig, ListenerProtocol};
use control::{ExplainRequest, ExplainStep};
use proxy::Snapshot;
use proxy::filter::Filter;

use self::listener::{
    addresses_text, choose_listener, describe_chain, describe_misdirected, describe_relay,
};
use self::request::Request;
use self::rules::{Client, describe_head};
use self::tls::{client_of, describe_tls, is_client_known, shown_by};
use self::trial::{Refusal, Trial, ends, try_out};
use crate::Failure;
use crate::arguments::Explain;
use crate::filter_list::loader;

type Listener = ListenerConfig<Box<dyn Filter>>;

/// Prints the steps of one request.
pub(crate) fn explain(explain: &Explain) -> Result<(), Failure> {
    let request = ExplainRequest {
        method: explain.method.clone().unwrap_or_else(|| "GET".to_owned()),
        url: explain.url.clone().unwrap_or_default(),
        headers: explain.headers.clone(),
        tls: explain.tls.clone(),
        listener: explain.listener.clone(),
        from: explain.from,
    };
    let text = match (&explain.admin, &explain.config) {
        (Some(admin), _) => live::ask(admin, &request)?,
        (None, Some(config)) => of_file(config, explain, &request)?,
        (None, None) => return Err(Failure::Explain("say -c FILE or --admin ADDRESS".to_owned())),
    };
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// The steps under the configuration of a file.
fn of_file(config: &Path, explain: &Explain, request: &ExplainRequest) -> Result<String, Failure> {
    let mut loader = loader()?;
    let text = control::read_text(config).map_err(Failure::Config)?;
    let name = config.display().to_string();
    let snapshot = loader
        .load_with(&name, &text, &control::Files::beside(config))
        .map_err(|errors| Failure::Config(control::Refused::Invalid(errors)))?;
    let certificate = certificate(explain)?;
    let steps = steps(&snapshot, request, certificate, Knowledge::OfFile);
    Ok(steps_text(steps.map_err(Failure::Explain)?.iter().map(|it| (&*it.step, &*it.text))))
}

/// A line for each step.
fn steps_text<'s>(steps: impl Iterator<Item = (&'s str, &'s str)>) -> String {
    steps.map(|(step, text)| format!("{step:<9} {text}\n")).collect()
}

/// What is known beside the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// Nothing: host names stand for addresses that DNS was not asked for.
    OfFile,
    /// All that a process knows: what host names stand for is in its configuration.
    Live,
}

/// The steps of one request, which a client with this certificate sends.
///
/// # Errors
///
/// What is wrong with the question.
pub(crate) fn steps(
    snapshot: &Arc<Snapshot>,
    asked: &ExplainRequest,
    certificate: Option<Arc<Certificate>>,
    knowledge: Knowledge,
) -> Result<Vec<ExplainStep>, String> {
    let request = match &asked.tls {
        Some(host) => Request::new("GET", &format!("https://{host}/"), &[]),
        None => Request::new(&asked.method, &asked.url, &asked.headers),
    }?;
    // As connections have it.
    let request = Request { from: asked.from.map(|ip| ip.to_canonical()), ..request };
    let (listener, why) = choose_listener(snapshot, asked.listener.as_deref(), &request)?;
    let mut story =
        Story { steps: Vec::new(), endpoints: 0, knowledge, asks_dns: false, is_random: false };
    story.line("listener", format!("{} ({}), {why}", listener.name, addresses_text(listener)));
    if let Some((seen, chain)) = describe_chain(&mut story, listener, &request) {
        let mut client = client_of(seen, &request, certificate.as_ref());
        let trial = try_out(snapshot, listener, &mut client, &request);
        let shown_by = shown_by(listener, chain);
        let is_secured = describe_tls(&mut story, snapshot, seen, &shown_by, &request, client);
        if is_secured && asked.tls.is_none() {
            let certificate = certificate.filter(|_| is_client_known(seen, &request));
            let client = certificate.and_then(|certificate| certificate.as_peer());
            describe_misdirected(&mut story, listener, chain, &request);
            let ends = ends(listener, &request);
            let client = Client { from: request.from, certificate: client.as_ref(), ends: &ends };
            describe_request(&mut story, snapshot, seen, &request, client, &trial);
        }
    }
    Ok(story.steps)
}

/// The client's certificate and key from the command line, if any.
fn certificate(explain: &Explain) -> Result<Option<Arc<Certificate>>, Failure> {
    let (Some(chain), Some(key)) = (&explain.cert, &explain.key) else { return Ok(None) };
    // Named on the command line, and not in the configuration's folder.
    let files = control::Files::beside(Path::new("."));
    let read = |path: &Path| {
        let content = files.read(path);
        content.map_err(|error| Failure::Explain(format!("{}: {error}", path.display())))
    };
    let failed = |error| Failure::Explain(format!("{}: {error}", chain.display()));
    let certificate = Certificate::from_pem(&read(chain)?, &read(key)?).map_err(failed)?;
    certificate.check_time(files.now()).map_err(failed)?;
    Ok(Some(Arc::new(certificate)))
}

/// Describes the steps of a request after the listener.
fn describe_request(
    story: &mut Story,
    snapshot: &Snapshot,
    listener: &Listener,
    request: &Request,
    client: Client<'_>,
    trial: &Trial,
) {
    match listener.protocol {
        ListenerProtocol::Tcp => return describe_relay(story, snapshot, listener),
        ListenerProtocol::Rpc(name) => {
            let text = format!("the listener accepts calls of {name}, and this is an HTTP request");
            return story.line("outcome", text);
        }
        ListenerProtocol::Auto | ListenerProtocol::Http1 | ListenerProtocol::Http2 => {}
    }
    describe_head(story, snapshot, listener, request, client);
    let outcome = outcome(snapshot, trial);
    match trial {
        Trial::Answered { refusal: Some(Refusal { cause, .. }), .. }
            if story.asks_dns && cause == "no_endpoint" =>
        {
            // Nothing is asked here.
            story.line("outcome", "forwarded to one of the addresses that DNS has");
        }
        Trial::Answered { .. } if story.is_random => {
            story.line("outcome", format!("{outcome}, for the cluster that is chosen this time"));
        }
        _ => story.line("outcome", outcome),
    }
}

/// The steps of a request, as they are found.
#[derive(Debug)]
struct Story {
    steps: Vec<ExplainStep>,
    /// How many of them are about an endpoint.
    endpoints: usize,
    knowledge: Knowledge,
    /// Whether the request goes where DNS says, which was not asked.
    asks_dns: bool,
    /// Whether a random number chooses the cluster: the outcome is that for one of them.
    is_random: bool,
}

impl Story {
    fn line(&mut self, step: &str, text: impl Into<String>) {
        self.steps.push(ExplainStep::new(step, text));
    }

    /// A step about a cluster.
    fn cluster(&mut self, id: ClusterId, text: String) {
        let cluster = Some(id);
        self.steps.push(ExplainStep { cluster, ..ExplainStep::new("cluster", text) });
    }

    /// A step about an endpoint of a cluster.
    fn endpoint(&mut self, cluster: ClusterId, id: EndpointId, text: String) {
        let (cluster, endpoint) = (Some(cluster), Some(id));
        self.endpoints += 1;
        self.steps.push(ExplainStep { endpoint, cluster, ..ExplainStep::new("endpoint", text) });
    }
}

/// The outcome of the request in a running process.
fn outcome(snapshot: &Snapshot, trial: &Trial) -> String {
    match trial {
        Trial::Forwarded(cluster, address) => {
            let cluster = cluster.and_then(|id| snapshot.cluster(id));
            let cluster = cluster.map_or("", |cluster| &cluster.name);
            format!("forwarded to cluster {cluster}, this time {address}")
        }
        Trial::ForwardedOnward => "forwarded to the original destination".to_owned(),
        Trial::Answered { head, refusal } => answer_text(head, refusal.as_ref()),
        Trial::Suspended(topic) => format!("waits for an answer about {topic}"),
        Trial::Refused => "the connection is closed without a response".to_owned(),
    }
}

/// An answer of the proxy's own in a line.
fn answer_text(head: &str, refusal: Option<&Refusal>) -> String {
    let status = head.split(' ').nth(1).unwrap_or_default();
    let location = head.lines().find_map(|line| line.strip_prefix("location: "));
    match (location, refusal) {
        (Some(location), _) => format!("Strait replies with {status}, to {location}"),
        (None, Some(Refusal { cause, detail: Some(detail) })) => {
            format!("Strait replies with {status}, cause {cause} ({detail})")
        }
        (None, Some(Refusal { cause, detail: None })) => {
            format!("Strait replies with {status}, cause {cause}")
        }
        (None, None) => format!("Strait replies with {status}"),
    }
}
