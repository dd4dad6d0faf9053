//! What connections were agreed on, as numbers that two processes compare.
//!
//! A connection may move to another process where its listener, its chain and the cluster on its other side
//! would have had it agree on the same: what is spoken, TLS and whom it trusts, the PROXY header, the mark.
//! Anything else may differ, as it may after a reload. The number follows from the effective configuration
//! as text, so that it is the same in every process and in every version that writes the same text; and from the
//! authorities in files that it names, since these may be others under the same name, as in another container.
//! Whom the system trusts is the system's.

use serde_json::Value as Json;

use crate::effective::effective;
use crate::map::Map;
use crate::snapshot::{Cluster, Listener, RootsSource, Snapshot};

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
    let listeners: Map<&str, &Listener<F>> =
        snapshot.listeners.iter().map(|it| (&*it.name, &**it)).collect();
    for listener in list(&text, "listeners") {
        let name = name(listener);
        let built = listeners.get(&*name).copied();
        for chain in list(listener, "chains") {
            let chain_name = self::name(chain);
            let chains = built.iter().flat_map(|built| &built.chains);
            let trusted = chains.filter(|it| *it.name == *chain_name);
            let trusted = trusted.filter_map(|it| roots_of_clients(&it.listener));
            let fingerprint = fingerprint(chain, &["match", "protocol", "tls"], trusted);
            let name = format!("{name}/{chain_name}");
            all.push(Agreed { kind: AgreedKind::Chain, name, fingerprint });
        }
        let trusted = built.into_iter().filter_map(|it| roots_of_clients(it));
        let fingerprint = fingerprint(listener, &["protocol", "tls", "proxy_protocol"], trusted);
        all.push(Agreed { kind: AgreedKind::Listener, name, fingerprint });
    }
    let clusters: Map<&str, &Cluster> =
        snapshot.clusters.iter().map(|(_, it)| (&*it.name, &**it)).collect();
    for cluster in list(&text, "clusters") {
        let keys = ["protocol", "tls", "transports", "proxy_protocol", "mark"];
        let name = name(cluster);
        let of_all = clusters.get(&*name).into_iter().flat_map(|it| it.transports.tls());
        let trusted = of_all.filter_map(|it| it.source.roots.as_deref());
        let fingerprint = fingerprint(cluster, &keys, trusted);
        all.push(Agreed { kind: AgreedKind::Cluster, name, fingerprint });
    }
    all.sort();
    all
}

/// The authorities that a client's certificate is from.
fn roots_of_clients<F>(end: &Listener<F>) -> Option<&RootsSource> {
    let client = end.tls.as_ref()?.source.client.as_ref()?;
    Some(&client.roots)
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

fn fingerprint<'r>(
    json: &Json,
    keys: &[&str],
    trusted: impl Iterator<Item = &'r RootsSource>,
) -> u64 {
    let mut hash = FNV_OFFSET;
    let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
    for key in keys {
        // A key that came later counts only where it is written, so that older programs find the same number without it.
        if *key == "transports" && json.get(key).is_none() {
            continue;
        }
        let mut value = json.get(key).cloned().unwrap_or_default();
        if let Some(tls) = value.as_object_mut().filter(|_| *key == "tls") {
            PASSING.iter().for_each(|key| drop(tls.remove(*key)));
        }
        key.bytes().chain(value.to_string().bytes()).for_each(&mut add);
    }
    trusted.filter_map(RootsSource::digest).flatten().for_each(add);
    hash
}

/// FNV-1a, which is the same everywhere; an operator gains nothing by a collision in a configuration of their own.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
