//! What connections were agreed on, as numbers that two processes compare.
//!
//! A connection may move to another process where its listener, its chain and the cluster on its other side
//! would have had it agree on the same: what is spoken, TLS and whom it trusts, the PROXY header, the mark.
//! Anything else may differ, as it may after a reload. The number follows from the effective configuration
//! as text, so that it is the same in every process and in every version that writes the same text.

use serde_json::Value as Json;

use crate::effective::effective;
use crate::snapshot::Snapshot;

/// What a part of a configuration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgreedKind {
    /// A listener.
    Listener,
    /// A chain of a listener, named `listener/chain`.
    Chain,
    /// A cluster.
    Cluster,
}

/// What connections of a listener, a chain or a cluster were agreed on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Agreed {
    /// Of what.
    pub kind: AgreedKind,
    /// Its name.
    pub name: String,
    /// The number.
    pub fingerprint: u64,
}

/// All of a snapshot, by kind and name. Takes as long as writing the configuration down.
#[must_use]
pub fn agreed<F>(snapshot: &Snapshot<F>) -> Vec<Agreed> {
    let text = effective(snapshot);
    let mut all = Vec::new();
    for listener in list(&text, "listeners") {
        let name = name(listener);
        for chain in list(listener, "chains") {
            let name = format!("{name}/{}", self::name(chain));
            let fingerprint = fingerprint(chain, &["match", "protocol", "tls"]);
            all.push(Agreed { kind: AgreedKind::Chain, name, fingerprint });
        }
        let fingerprint = fingerprint(listener, &["protocol", "tls", "proxy_protocol"]);
        all.push(Agreed { kind: AgreedKind::Listener, name, fingerprint });
    }
    for cluster in list(&text, "clusters") {
        let keys = ["protocol", "tls", "transports", "proxy_protocol", "mark"];
        let fingerprint = fingerprint(cluster, &keys);
        all.push(Agreed { kind: AgreedKind::Cluster, name: name(cluster), fingerprint });
    }
    all.sort();
    all
}

/// Keys below `tls` that say nothing of what a connection was agreed on: a new certificate is no reason to
/// treat the connections of the former one otherwise.
const PASSING: [&str; 3] = ["certificates", "session_tickets", "session_ticket_files"];

fn list<'j>(json: &'j Json, key: &str) -> impl Iterator<Item = &'j Json> {
    json.get(key).and_then(Json::as_array).into_iter().flatten()
}

fn name(json: &Json) -> String {
    json.get("name").and_then(Json::as_str).unwrap_or_default().to_owned()
}

fn fingerprint(json: &Json, keys: &[&str]) -> u64 {
    let mut hash = FNV_OFFSET;
    for key in keys {
        // A key that came later counts only where it is written, so that older programs find the same number without it.
        if *key == "transports" && json.get(key).is_none() {
            continue;
        }
        let mut value = json.get(key).cloned().unwrap_or_default();
        if let Some(tls) = value.as_object_mut().filter(|_| *key == "tls") {
            PASSING.iter().for_each(|key| drop(tls.remove(*key)));
        }
        for byte in key.bytes().chain(value.to_string().bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }
    hash
}

/// FNV-1a, which is the same everywhere; an operator gains nothing by a collision in a configuration of their own.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
