//! Properties of the PROXY protocol, for any bytes.
//!
//! Shared by the fuzz target of the same name and by the replay of its corpus: no input panics, a
//! verdict once given stays whatever follows, and addresses that were read and written are read
//! again as the same.

use std::net::SocketAddr;

use wire::buffer::Buffer;
use wire::proxy_protocol::{Header, V1_BYTES_MAX, V2_BYTES_MAX, decode, encode_v1, encode_v2};

/// Checks everything on `data`.
pub(crate) fn check(data: &[u8]) {
    let whole = decode(data);
    for len in 0..data.len() {
        match (decode(data.split_at(len).0), whole) {
            (Ok(None), Ok(Some((_, n)))) => assert!(len < n, "{len} of {}", data.escape_ascii()),
            (Ok(None), _) => {}
            (early, whole) => assert_eq!(early, whole, "{len} of {}", data.escape_ascii()),
        }
    }
    match whole {
        Ok(None) => assert!(data.len() < V2_BYTES_MAX, "the wait for more has an end"),
        Ok(Some((header, n))) => {
            assert!(n <= data.len());
            if let Header::Proxied { source, destination } = header {
                check_again(source, destination);
            }
        }
        Err(_) => {}
    }
}

fn check_again(source: SocketAddr, destination: SocketAddr) {
    for encode in [encode_v1, encode_v2] {
        let mut out = Buffer::new(V1_BYTES_MAX);
        encode(source, destination, &mut out);
        let expected = Ok(Some((in_one_family(source, destination), out.len())));
        assert_eq!(decode(out.filled()), expected, "{source} {destination}");
    }
}

/// IPv4 addresses mapped into IPv6 go on as IPv4, if both are.
fn in_one_family(mut source: SocketAddr, mut destination: SocketAddr) -> Header {
    let (from, to) = (source.ip().to_canonical(), destination.ip().to_canonical());
    if from.is_ipv4() && to.is_ipv4() {
        source.set_ip(from);
        destination.set_ip(to);
    }
    Header::Proxied { source, destination }
}
