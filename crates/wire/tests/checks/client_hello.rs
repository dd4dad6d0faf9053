//! Properties of the ClientHello reader, for any bytes.
//!
//! Shared by the fuzz target of the same name, by the replay of its corpus, and by the tests of
//! captured hellos: no input panics, a verdict once given stays whatever follows, the records that
//! a hello is cut into change nothing, and detection agrees on what is a hello at all.

use wire::detect::{Detected, detect};
use wire::tls::client_hello::{CLIENT_HELLO_BYTES_MAX, ClientHelloError, decode};
use wire::tls::{ServerName, Version};

/// All that a hello says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) server_name: Option<ServerName>,
    pub(crate) highest_version: Option<Version>,
    pub(crate) alpn: Vec<Vec<u8>>,
}

pub(crate) type Verdict = Result<Option<Hello>, ClientHelloError>;

/// Checks everything on `data`.
pub(crate) fn check(data: &[u8]) {
    let whole = verdict(data);
    // Many cuts of a long input show no more than some.
    for len in (0..data.len()).step_by(data.len() / 300 + 1) {
        let early = verdict(data.split_at(len).0);
        if early != Ok(None) {
            assert_eq!(early, whole, "{len} of {}", data.escape_ascii());
        }
    }
    check_detection(data, &whole);
    match whole {
        Ok(None) => assert!(data.len() < CLIENT_HELLO_BYTES_MAX, "the wait for more has an end"),
        Ok(Some(hello)) => check_hello(data, &hello),
        Err(error) => assert!(matches!(error.alert().code(), 10 | 22 | 47 | 50)),
    }
}

/// The verdict on bytes that come at once.
pub(crate) fn verdict(data: &[u8]) -> Verdict {
    let mut scratch = b"of an earlier connection".to_vec();
    let hello = decode(data, &mut scratch)?.map(|hello| Hello {
        server_name: hello.server_name,
        highest_version: hello.highest_version,
        alpn: hello.alpn().map(<[u8]>::to_vec).collect(),
    });
    assert!(scratch.len() <= CLIENT_HELLO_BYTES_MAX, "the scratch has a bound");
    Ok(hello)
}

/// The message at the front of `records`, cut into records of `fragment_len`.
pub(crate) fn recut_records(records: &[u8], fragment_len: usize) -> Vec<u8> {
    let message = message(records);
    let mut recut = Vec::new();
    for fragment in message.chunks(fragment_len) {
        let len = u16::try_from(fragment.len()).expect("a fragment fits a record");
        recut.extend([22, 3, 3]);
        recut.extend(len.to_be_bytes());
        recut.extend(fragment);
    }
    recut
}

fn check_detection(data: &[u8], whole: &Verdict) {
    match (detect(data, &[]), whole) {
        (Some(Detected::Tls), Err(error)) => assert_ne!(*error, ClientHelloError::NotClientHello),
        (Some(Detected::Tls), Ok(_)) => {}
        (None, Ok(None)) => assert!(data.len() < 6),
        (_, other) => assert_eq!(*other, Err(ClientHelloError::NotClientHello)),
    }
}

fn check_hello(data: &[u8], hello: &Hello) {
    if let Some(name) = &hello.server_name {
        let text = name.as_str();
        assert!(!text.is_empty() && !text.ends_with('.'), "{text}");
        assert!(!text.bytes().any(|octet| octet.is_ascii_uppercase()), "{text}");
        assert_eq!(ServerName::parse(text.as_bytes()).as_ref(), Some(name));
    }
    assert!(!hello.alpn.iter().any(Vec::is_empty));
    for fragment_len in [1, 2, 5, 100, 1 << 14] {
        let recut = recut_records(data, fragment_len);
        let expected = if recut.len() > CLIENT_HELLO_BYTES_MAX {
            Err(ClientHelloError::TooLong)
        } else {
            Ok(Some(hello.clone()))
        };
        assert_eq!(verdict(&recut), expected, "by {fragment_len}: {}", data.escape_ascii());
    }
}

/// The message in the records at the front.
fn message(mut records: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    loop {
        if let Some(&[_, high, middle, low]) = message.first_chunk() {
            let len = u32::from_be_bytes([0, high, middle, low]);
            if message.len() == 4 + usize::try_from(len).expect("it fits") {
                return message;
            }
        }
        let (&[_, _, _, high, low], rest) = records.split_first_chunk().expect("a record");
        let len = usize::from(u16::from_be_bytes([high, low]));
        let (fragment, rest) = rest.split_at(len);
        message.extend(fragment);
        records = rest;
    }
}
