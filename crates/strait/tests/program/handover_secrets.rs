//! What a process that has given its connections still has of their keys.

use rustls::{ProtocolVersion, SupportedProtocolVersion};

use crate::handover::{Successors, over_tls, upgraded, with_handover};
use crate::kit::{Service, Strait, count_octets_in_memory};
use crate::rustls_client::{Context, RustlsClient};
use crate::tls::certificates;

const CLIENTS: usize = 20;

/// A traffic secret as it stands in rustls' `OkmBlock`, which rustls moves out of a box that it then frees: 64 octets and
/// a length. The thread's next handshake overwrites it. That copy is out of reach.
fn okm_block(secret: &[u8]) -> Vec<u8> {
    let mut block = secret.to_vec();
    block.resize(64, 0);
    block.extend(secret.len().to_le_bytes());
    block
}

/// The server's key of TLS 1.2 as it stands in rustls' key block, which rustls frees as it is: behind the client's, whose
/// first octets the allocator has overwritten.
fn key_block(client: &[u8], server: &[u8]) -> Vec<u8> {
    [&client[16.min(client.len() - 1)..], server].concat()
}

/// Handovers that are looked at for one that leaves nothing but the blocks above: the allocator may overwrite other octets of
/// a block than usual, and what is left of it is then taken for a copy of ours. One of ours would be there each time.
const ATTEMPTS_MAX: usize = 3;

#[test]
fn a_process_that_has_given_its_connections_has_none_of_their_keys() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut attempts = (0..ATTEMPTS_MAX).map(|_| left_behind(version));
        let mut seen = Vec::new();
        let is_clean = attempts.any(|(of_giver, of_rustls)| {
            let of_giver_in_all: usize = of_giver.iter().sum();
            seen.push((of_giver, of_rustls));
            assert!(of_rustls < CLIENTS / 2, "{version:?}: {of_rustls}");
            of_giver_in_all == of_rustls
        });
        assert!(is_clean, "{version:?}: {seen:?}");
    }
}

/// How often each key is in the memory of a process that has given its connections, and how many of these copies are in
/// memory that rustls freed.
fn left_behind(version: &'static SupportedProtocolVersion) -> (Vec<usize>, usize) {
    let (service, mut successors) = (Service::start("one"), Successors::default());
    let scratch = certificates();
    let config = with_handover(&scratch, &over_tls(&scratch, &service), "probation: 1m");
    let strait = Strait::run_in(scratch, &config);
    let context = Context::new(version);
    let mut clients: Vec<_> =
        (0..CLIENTS).map(|_| RustlsClient::connect(strait.listener, &context)).collect();
    for client in &mut clients {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    }
    upgraded(&strait, &mut successors);
    for client in &mut clients {
        assert!(client.get("/").starts_with("HTTP/1.1 200 OK"));
    }
    let traffic_secrets = context.traffic_secrets();
    // The sockets stay open, so that the new process needs the keys.
    let (keys, sockets): (Vec<_>, Vec<_>) =
        clients.into_iter().map(RustlsClient::into_keys).unzip();
    let of_rustls: Vec<_> = match version.version {
        ProtocolVersion::TLSv1_3 => traffic_secrets.iter().map(|it| okm_block(it)).collect(),
        _ => keys.iter().map(|pair: &Vec<Vec<u8>>| key_block(&pair[0], &pair[1])).collect(),
    };
    let secrets = [traffic_secrets, keys.into_iter().flatten().collect()].concat();
    let of_taker = count_octets_in_memory(successors.0[0], &secrets);
    assert!(of_taker.iter().all(|count| *count > 0), "the search finds them: {of_taker:?}");
    let of_rustls = count_octets_in_memory(strait.pid(), &of_rustls).iter().sum();
    let of_giver = count_octets_in_memory(strait.pid(), &secrets);
    drop(sockets);
    (of_giver, of_rustls)
}
