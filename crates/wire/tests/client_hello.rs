//! Hellos of real clients, as they came over loopback.
//!
//! They stand in the fuzz corpus. openssl: `openssl s_client` 3.0 with `-servername shop.example`
//! and, but for the unnamed one, `-alpn`; curl: 7.88; node: 20, `tls.connect`; go_post_quantum:
//! `crypto/tls` of Go 1.26, whose key share alone takes 1,216 bytes.

use wire::tls::{ServerName, Version};

#[path = "checks/client_hello.rs"]
mod client_hello;

use client_hello::{Hello, check, recut_records, verdict};

macro_rules! capture {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../../fuzz/corpus/client_hello/", $name)))
    };
}

const OPENSSL: (&str, &[u8]) = capture!("openssl");
const OPENSSL_TLS10: (&str, &[u8]) = capture!("openssl_tls10");
const OPENSSL_TLS12: (&str, &[u8]) = capture!("openssl_tls12");
const OPENSSL_UNNAMED: (&str, &[u8]) = capture!("openssl_unnamed");
const CURL: (&str, &[u8]) = capture!("curl");
const CURL_HTTP1: (&str, &[u8]) = capture!("curl_http1");
const NODE: (&str, &[u8]) = capture!("node");
const GO_POST_QUANTUM: (&str, &[u8]) = capture!("go_post_quantum");

const ALL: [(&str, &[u8]); 8] = [
    OPENSSL,
    OPENSSL_TLS10,
    OPENSSL_TLS12,
    OPENSSL_UNNAMED,
    CURL,
    CURL_HTTP1,
    NODE,
    GO_POST_QUANTUM,
];

fn hello(name: &str, version: Version, alpn: &[&str]) -> Hello {
    Hello {
        server_name: ServerName::parse(name.as_bytes()),
        highest_version: Some(version),
        alpn: alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
    }
}

#[test]
fn what_real_clients_ask_for_is_read() {
    let both = ["h2", "http/1.1"];
    for ((client, bytes), expected) in [
        (OPENSSL, hello("shop.example", Version::Tls13, &both)),
        (OPENSSL_TLS10, hello("shop.example", Version::Tls10, &[])),
        (OPENSSL_TLS12, hello("shop.example", Version::Tls12, &["http/1.1"])),
        (OPENSSL_UNNAMED, hello("", Version::Tls13, &[])),
        (CURL, hello("shop.example", Version::Tls13, &both)),
        (CURL_HTTP1, hello("shop.example", Version::Tls12, &["http/1.1"])),
        (NODE, hello("shop.example", Version::Tls13, &both)),
        (GO_POST_QUANTUM, hello("shop.example", Version::Tls13, &both)),
    ] {
        assert_eq!(verdict(bytes), Ok(Some(expected)), "{client}");
    }
    assert!(GO_POST_QUANTUM.1.len() > 1460, "it takes more than one segment");
}

#[test]
fn no_cut_changes_what_is_read() {
    for (client, bytes) in ALL {
        let whole = verdict(bytes);
        for fragment_len in [1, 2, 3, 4, 5, 100, bytes.len()] {
            let records = recut_records(bytes, fragment_len);
            for len in 0..records.len() {
                assert_eq!(verdict(&records[..len]), Ok(None), "{client} {fragment_len} {len}");
            }
            assert_eq!(verdict(&records), whole, "{client} {fragment_len}");
        }
    }
}

#[test]
fn damaged_hellos_are_judged_without_a_panic() {
    for (_, bytes) in ALL {
        for at in 0..bytes.len() {
            for octet in [0, bytes[at].wrapping_add(1), bytes[at].wrapping_sub(1), 0xff] {
                let mut damaged = bytes.to_vec();
                damaged[at] = octet;
                let _ = verdict(&damaged);
                let _ = verdict(&recut_records(&with_right_lens(&damaged), 100));
            }
        }
    }
}

#[test]
fn a_hello_with_a_byte_more_or_less_is_judged_without_a_panic() {
    for (_, bytes) in ALL {
        for at in 9..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged.remove(at);
            check(&with_right_lens(&damaged));
            damaged.insert(at, bytes[at]);
            damaged.insert(at, 0x0a);
            check(&with_right_lens(&damaged));
        }
    }
}

/// `hello` with the headers of one record and one message, so that what is in it is looked at.
fn with_right_lens(hello: &[u8]) -> Vec<u8> {
    let (_, body) = hello.split_at(9);
    let [_, len @ ..] = u32::try_from(body.len()).expect("it fits").to_be_bytes();
    let message = [&[1][..], &len, body].concat();
    let len = u16::try_from(message.len()).expect("it fits").to_be_bytes();
    [&[22, 3, 1][..], &len, &message].concat()
}
