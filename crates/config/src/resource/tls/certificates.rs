//! The certificates that a snapshot shows to others, for operators: whose, for which names, and how long.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tls::{Certificate, CertificateError};

use crate::date;
use crate::resource::tls::expiry;
use crate::snapshot::{CertificateSource, ClusterId, ListenerId, Snapshot};

/// A certificate and who shows it.
#[derive(Clone, Debug)]
pub struct CertificateUse {
    /// Who.
    pub user: CertificateUser,
    /// The file or resource that has it.
    pub source: Arc<CertificateSource>,
}

/// Who shows a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateUser {
    /// A listener, to clients.
    Listener(Arc<str>),
    /// A chain, to clients: its listener, and its own name.
    Chain(Arc<str>, Arc<str>),
    /// A cluster, to its endpoints.
    Cluster(Arc<str>),
}

/// All certificates of `snapshot`, listeners first, in the order of the file.
#[must_use]
pub fn certificates<F>(snapshot: &Snapshot<F>) -> Vec<CertificateUse> {
    let mut all = Vec::new();
    let mut add = |user: CertificateUser, sources: &[Arc<CertificateSource>]| {
        let of_user = |source| CertificateUse { user: user.clone(), source: Arc::clone(source) };
        all.extend(sources.iter().map(of_user));
    };
    for listener in &snapshot.listeners {
        if let Some(tls) = &listener.tls {
            let user = CertificateUser::Listener(Arc::clone(&listener.name));
            add(user, &tls.source.certificates);
        }
        for chain in &listener.chains {
            if let Some(tls) = &chain.listener.tls {
                let (listener, chain) = (Arc::clone(&listener.name), Arc::clone(&chain.name));
                add(CertificateUser::Chain(listener, chain), &tls.source.certificates);
            }
        }
    }
    for (_, cluster) in snapshot.clusters.iter() {
        for tls in cluster.transports.tls() {
            let user = CertificateUser::Cluster(Arc::clone(&cluster.name));
            add(user, tls.source.certificate.as_slice());
        }
    }
    all
}

/// Whether a listener or a cluster that is new or changed in `snapshot` shows a certificate. Costs as much as the change.
#[must_use]
pub fn brings_certificates<F>(snapshot: &Snapshot<F>) -> bool {
    let changes = &snapshot.changes;
    let mut listeners = changes.listeners_added.iter().chain(&changes.listeners_changed);
    let mut clusters = changes.clusters_added.iter().chain(&changes.clusters_changed);
    let of_listener = |id: &ListenerId| {
        let listener = snapshot.listener(*id).map(|(_, listener)| listener);
        listener.is_some_and(|listener| {
            let chains = listener.chains.iter().filter_map(|chain| chain.listener.tls.as_ref());
            listener.tls.iter().chain(chains).any(|tls| !tls.source.certificates.is_empty())
        })
    };
    let of_cluster = |id: &ClusterId| {
        let mut tls = snapshot.cluster(*id).into_iter().flat_map(|it| it.transports.tls());
        tls.any(|tls| tls.source.certificate.is_some())
    };
    listeners.any(of_listener) || clusters.any(of_cluster)
}

impl CertificateUse {
    /// What is to be said about the time that it has left at `now`, in seconds since the Unix epoch; none
    /// if there is enough of it.
    #[must_use]
    pub fn expiry_warning(&self, now: u64) -> Option<String> {
        expiry_warning(&self.source.certificate, now)
    }

    /// As the admin interface shows it.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let certificate = &self.source.certificate;
        json!({
            "user": self.user.to_string(),
            "chain": self.source.chain,
            "names": certificate.names(),
            "subject": certificate.subject(),
            "not_after": date::rfc3339(certificate.not_after()),
            "fingerprint": hexadecimal(&certificate.fingerprint()),
        })
    }
}

impl fmt::Display for CertificateUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, source } = self;
        let certificate = &source.certificate;
        write!(f, "{user}, {}: ", source.chain)?;
        match certificate.names() {
            [] => f.write_str(certificate.subject())?,
            names => f.write_str(&names.join(", "))?,
        }
        let end = date::rfc3339(certificate.not_after());
        write!(f, "; until {end}; SHA-256 {}", hexadecimal(&certificate.fingerprint()))
    }
}

impl fmt::Display for CertificateUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listener(listener) => write!(f, "listener {listener}"),
            Self::Chain(listener, chain) => write!(f, "listener {listener}, chain {chain}"),
            Self::Cluster(cluster) => write!(f, "cluster {cluster}"),
        }
    }
}

/// See [`CertificateUse::expiry_warning`].
pub(crate) fn expiry_warning(certificate: &Certificate, now: u64) -> Option<String> {
    if let Err(error @ CertificateError::NotValidYet { .. }) = certificate.check_time(now) {
        return Some(expiry::rule(&error));
    }
    expiry::warning("the certificate", certificate.not_after(), now, expiry::EXPIRY_WARNING_SECONDS)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
