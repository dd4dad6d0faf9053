//! The TLS handshake of a request: what is agreed on, and which certificate is shown.

use std::sync::Arc;

use config::snapshot::{ChainId, TlsMode};
use config::{CertificateUse, CertificateUser};
use proxy::Snapshot;
use tls::Certificate;

use super::client::Client;
use super::listener::describe_relay;
use super::request::Request;
use super::{Listener, Story};

/// The client of the request, as the connection sees it.
pub(super) fn client_of(
    listener: &Listener,
    request: &Request,
    certificate: Option<&Arc<Certificate>>,
) -> Client {
    if is_secure(listener, request) {
        Client::secure(listener.protocol, &request.server_name, certificate.cloned())
    } else {
        Client::plain(listener.protocol)
    }
}

/// Whether the listener asks clients for certificates.
pub(super) fn is_client_known(listener: &Listener, request: &Request) -> bool {
    let asks = listener.tls.as_ref().is_some_and(|tls| tls.source.client.is_some());
    asks && is_secure(listener, request)
}

/// Whether the client begins with TLS: as the URL says, or else as the listener wants.
pub(super) fn is_secure(listener: &Listener, request: &Request) -> bool {
    let is_strict = listener.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Strict);
    request.is_secure.unwrap_or(is_strict)
}

/// Describes the TLS handshake, if there is one; returns whether the request is sent after it.
pub(super) fn describe_tls(
    story: &mut Story,
    snapshot: &Snapshot,
    listener: &Listener,
    shown_by: &CertificateUser,
    request: &Request,
    client: Client,
) -> bool {
    let is_strict = listener.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Strict);
    let facts = match client.into_facts() {
        None if is_strict => {
            story.line("tls", "is required by this listener: use https://");
            return false;
        }
        None => return true,
        Some(_) if listener.tls.is_none() => {
            if listener.relay.is_some() {
                story.line("tls", "is not terminated here");
                describe_relay(story, snapshot, listener);
            } else {
                story.line("tls", "is not terminated by this listener: use http://");
            }
            return false;
        }
        Some(Ok(facts)) => facts,
        Some(Err(error)) => {
            story.line("tls", format!("fails: {error}"));
            return false;
        }
    };
    let protocol =
        facts.alpn.as_deref().map_or_else(|| "no protocol".into(), String::from_utf8_lossy);
    let group = facts.group.map_or_else(String::new, |group| format!(", {group}"));
    let (version, suite) = (facts.version, facts.cipher_suite);
    story.line("tls", format!("{version}, {suite}{group}, {protocol}"));
    let shown = facts.peer.as_ref().map(|peer| peer.fingerprint);
    let all = config::certificates(snapshot);
    let is_shown = |used: &&CertificateUse| {
        used.user == *shown_by && Some(used.source.certificate.fingerprint()) == shown
    };
    if let Some(used) = all.iter().find(is_shown) {
        story.line("shows", used.to_string());
        let (name, certificate) = (&request.server_name, &used.source.certificate);
        let verdict = if covers(certificate.names(), name) {
            format!("the certificate is for {name}")
        } else {
            format!("the certificate is not for {name}: clients that verify it refuse it")
        };
        story.line("name", verdict);
    }
    true
}

/// The listener or chain whose certificate a connection of this chain gets: several may have the
/// same certificate.
pub(super) fn shown_by(listener: &Listener, chain: Option<ChainId>) -> CertificateUser {
    let name = Arc::clone(&listener.name);
    match listener.chains.iter().find(|each| Some(each.id) == chain) {
        Some(chain) => CertificateUser::Chain(name, Arc::clone(&chain.name)),
        None => CertificateUser::Listener(name),
    }
}

/// Whether one of a certificate's names is `host`, or has `*` for its first label (RFC 9525,
/// section 6.3).
fn covers(names: &[Box<str>], host: &str) -> bool {
    let host = host.trim_end_matches('.');
    let parent = host.split_once('.').map(|(_, parent)| parent);
    names.iter().any(|name| match name.strip_prefix("*.") {
        Some(suffix) => parent.is_some_and(|parent| parent.eq_ignore_ascii_case(suffix)),
        None => name.eq_ignore_ascii_case(host),
    })
}
