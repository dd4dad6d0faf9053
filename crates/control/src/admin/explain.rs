//! `/explain`: where a request would go, and why.
//!
//! The data path says it, from the configuration in effect, on a thread that may wait. What counters know of the
//! endpoints that it names is added in pieces, so that no turn of control follows the size of a cluster.

use std::net::IpAddr;

use config::snapshot::{ClusterId, EndpointId};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use super::answer::Answer;
use super::{EndpointReading, Query};
use crate::clock;
use crate::outliers::ejected_until;

/// Endpoints whose counters are read in one turn of control.
const ENDPOINTS_A_TURN_MAX: usize = 500;

/// Header fields of a request.
const HEADERS_MAX: usize = 100;

/// What the page says without a question.
pub(super) const USAGE: &str = "\
Says where a request would go, and why. Nothing is sent.

  /explain?url=http://HOST/PATH   the request's URL, encoded as in a form
    &method=POST                  GET unless said
    &header=NAME:%20VALUE         a header field; again for more
    &listener=NAME                the listener, where the URL's port does not say
    &from=ADDRESS                 the client's address, for rules and chains by source
  /explain?tls=HOST               only the certificate and TLS parameters for this host

strait explain --admin ADDRESS GET http://HOST/PATH asks, and prints the answer for reading.
";

/// The request that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainRequest {
    /// Its method.
    pub method: String,
    /// Its URL, or a path; empty if only the handshake for `tls` is asked about.
    pub url: String,
    /// Its header fields, as `name: value`.
    pub headers: Vec<String>,
    /// The host and port for which only the TLS handshake is asked about.
    pub tls: Option<String>,
    /// The listener that gets it, where the URL does not say.
    pub listener: Option<String>,
    /// The client's address.
    pub from: Option<IpAddr>,
}

/// A step of its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainStep {
    /// Which step, in a word or two.
    pub step: String,
    /// What happens there.
    pub text: String,
    /// The endpoint that it is about.
    #[serde(skip)]
    pub endpoint: Option<EndpointId>,
    /// The cluster that it is about, or whose endpoint it is about.
    #[serde(skip)]
    pub cluster: Option<ClusterId>,
}

impl ExplainStep {
    /// A step that is about no endpoint and no cluster.
    #[must_use]
    pub fn new(step: impl Into<String>, text: impl Into<String>) -> Self {
        Self { step: step.into(), text: text.into(), endpoint: None, cluster: None }
    }
}

/// The steps, or why there are none.
pub(crate) type Explained = Result<Vec<ExplainStep>, String>;

/// Reads the arguments of a query, whose values are decoded.
pub(super) fn wanted(
    arguments: impl Iterator<Item = (String, String)>,
) -> Result<ExplainRequest, String> {
    let mut request = ExplainRequest { method: "GET".to_owned(), ..ExplainRequest::default() };
    for (name, value) in arguments {
        match name.as_str() {
            "method" => request.method = value,
            "url" => request.url = value,
            "header" if request.headers.len() == HEADERS_MAX => {
                return Err(format!("header: at most {HEADERS_MAX}"));
            }
            "header" => request.headers.push(value),
            "tls" => request.tls = Some(value),
            "listener" => request.listener = Some(value),
            "from" => {
                let address = value.parse();
                request.from =
                    Some(address.map_err(|_| format!("from: {value} is no IP address"))?);
            }
            _ => {
                return Err(format!(
                    "{name}: unknown argument; there are url, method, header, listener, from and tls"
                ));
            }
        }
    }
    if request.url.is_empty() && request.tls.is_none() {
        return Err("url: write /explain?url=http://HOST/PATH, encoded as in a form".to_owned());
    }
    Ok(request)
}

/// The page: asks for the steps, and then for what is counted of the endpoints in them.
pub(super) async fn page(request: ExplainRequest, queries: &mpsc::Sender<Query>) -> Option<Answer> {
    let (reply, explained) = oneshot::channel();
    queries.send(Query::Explain { request, reply }).await.ok()?;
    let mut steps = match explained.await.ok()? {
        Ok(steps) => steps,
        Err(hint) => return Some(Answer::text(400, hint + "\n")),
    };
    // The data path bounds how many there are.
    let is_about_endpoint = |it: &&mut ExplainStep| it.cluster.is_some() && it.endpoint.is_some();
    let mut about: Vec<_> = steps.iter_mut().filter(is_about_endpoint).collect();
    for piece in about.chunks_mut(ENDPOINTS_A_TURN_MAX) {
        let ids = piece.iter().filter_map(|step| Some((step.cluster?, step.endpoint?))).collect();
        let (reply, readings) = oneshot::channel();
        queries.send(Query::Endpoints { ids, reply }).await.ok()?;
        for (step, reading) in piece.iter_mut().zip(readings.await.ok()?) {
            step.text.push_str(&known(&reading));
        }
    }
    Some(Answer::json(&serde_json::json!({ "steps": steps })))
}

/// Why an endpoint is ejected and what it has counted, in the words of `/clusters`; nothing if it was not used yet.
fn known(EndpointReading { totals, health }: &EndpointReading) -> String {
    let failures: Vec<String> =
        totals.connect_failures.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let mut text = String::new();
    if let Some(ejected) = &health.ejected {
        let (until, reason) = (ejected_until(ejected), ejected.kind.as_str());
        let times = ejected.times;
        text += &format!("; ejected until {until} because of {reason}, times: {times}");
    }
    if totals.paused_until > clock::wall_ns() {
        let until = clock::rfc3339(totals.paused_until);
        text += &format!("; not connected to until {until}, since it refuses");
    }
    if totals.exchanges_total > 0 {
        let (all, failed) = (totals.exchanges_total, totals.exchanges_failed_total);
        text += &format!("; {all} exchanges, {failed} failed");
    }
    if !failures.is_empty() {
        text += &format!("; connect failures: {}", failures.join(", "));
    }
    if let Some(error) = &totals.last_error {
        let reason = error.reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        text += &format!("; last error {}{reason} at {}", error.cause, clock::rfc3339(error.at));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use config::outlier::{Ejected, OutlierKind};
    use telemetry::EndpointTotals;

    use super::*;
    use crate::health::KnownHealth;

    #[test]
    fn an_endpoint_is_shown_with_what_keeps_requests_from_it() {
        let until = Duration::from_secs(60);
        let ejected = Some(Ejected { kind: OutlierKind::Errors5xx, until, times: 2 });
        let health = KnownHealth { ejected, ..KnownHealth::default() };
        let text = known(&EndpointReading { health, ..EndpointReading::default() });
        assert!(text.starts_with("; ejected until 2"), "{text}");
        assert!(text.ends_with("Z because of errors_5xx, times: 2"), "{text}");

        let paused = |paused_until| {
            let totals = EndpointTotals { paused_until, ..EndpointTotals::default() };
            known(&EndpointReading { totals, ..EndpointReading::default() })
        };
        let later = clock::wall_ns() + 60_000_000_000;
        let until = clock::rfc3339(later);
        assert_eq!(paused(later), format!("; not connected to until {until}, since it refuses"));
        assert_eq!((paused(0), paused(clock::wall_ns())), (String::new(), String::new()));
    }
}
