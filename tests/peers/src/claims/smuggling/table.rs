//! The table: bytes that a client sends, and what must become of them.
//!
//! `/first` is what the client asks for; `/smuggled` is what an attacker hopes that the upstream
//! reads as a second request. Each row is sent on a connection of its own, followed by an honest
//! request `/after` from another client, which shares Strait's connections to the upstream: had
//! anything been left over on one of them, that request would get the wrong answer. In the end the
//! upstream's own log is compared with what Strait let through.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};

use crate::client::{self, Client};
use crate::lab::Lab;
use crate::strait::Strait;
use crate::wait;

/// When an upstream answers a request that has a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bodies {
    /// Possibly before it has read the body, so that the answer may win over the refusal of a
    /// body that turns out to be wrong.
    AnsweredUnread,
    /// Once it has read the body.
    ReadFirst,
}

/// What must become of a row.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Forwarded as one request; the connection goes on.
    Forwarded,
    /// Forwarded as two.
    BothForwarded,
    /// Answered with this status, closed, and never seen by the upstream.
    Refused(u16),
    /// Answered in HTTP/2 with a connection error, closed, and never seen by the upstream.
    RefusedAsHttp2,
    /// Refused once its body is seen; the upstream may have seen the head.
    RefusedInBody(u16),
}

use Fate::{BothForwarded, Forwarded, Refused, RefusedAsHttp2, RefusedInBody};

/// A GOAWAY that no stream was begun before, for PROTOCOL_ERROR (RFC 9113, section 6.8), between its
/// length and its text.
const GOAWAY: [u8; 14] = [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Name, fate, bytes, in which `NN` stands for the row's number, so that lengths stay true.
type Row = (&'static str, Fate, &'static str);

const ROWS: &[Row] = &[
    // What looks odd and is right.
    (
        "a body that looks like a request",
        Forwarded,
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length: 39\r\n\r\n\
         GET /smuggled-NN HTTP/1.1\r\nhost: a\r\n\r\n\n",
    ),
    (
        "a chunk that looks like a request",
        Forwarded,
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
         26\r\nGET /smuggled-NN HTTP/1.1\r\nhost: a\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "a GET with a body",
        Forwarded,
        "GET /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nGET /",
    ),
    (
        "content-length nominated by connection",
        Forwarded,
        "POST /first-NN HTTP/1.1\r\nhost: a\r\nconnection: content-length\r\ncontent-length: 38\r\n\r\n\
         GET /smuggled-NN HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    (
        "transfer-encoding nominated by connection",
        Forwarded,
        "POST /first-NN HTTP/1.1\r\nhost: a\r\nconnection: transfer-encoding\r\n\
         transfer-encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n",
    ),
    (
        "chunk extensions, leading zeros and trailers",
        Forwarded,
        "POST /first-NN HTTP/1.1\r\nhost: a\r\nTRANSFER-encoding: Chunked\r\n\r\n\
         0005;a=b;c=\"d\"\r\nGET /\r\n0\r\nx-trailer: GET /smuggled-NN\r\n\r\n",
    ),
    (
        "two requests in one packet",
        BothForwarded,
        "GET /first-NN HTTP/1.1\r\nhost: a\r\n\r\nGET /second-NN HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    (
        "a line's end in front of a request",
        Forwarded,
        "\r\nGET /first-NN HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    // Two ways to find the end of the body.
    (
        "content-length, then transfer-encoding",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length: 43\r\ntransfer-encoding: chunked\r\n\r\n\
         0\r\n\r\nGET /smuggled-NN HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    (
        "transfer-encoding, then content-length",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n\
         26\r\nGET /smuggled-NN HTTP/1.1\r\nhost: a\r\n\r\n\r\n0\r\n\r\n",
    ),
    (
        "content-length twice, differing",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\ncontent-length: 38\r\n\r\n\
         GET /smuggled-NN HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    (
        "content-length twice, the same",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    ),
    (
        "content-length as a list",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length: 5, 5\r\n\r\nhello",
    ),
    (
        "content-length with a sign",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length: +5\r\n\r\nhello",
    ),
    (
        "content-length below zero",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
    ),
    (
        "content-length in hexadecimal",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length: 0x5\r\n\r\nhello",
    ),
    (
        "content-length with a blank inside",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length: 3 5\r\n\r\n\
         GET /smuggled-NN HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    (
        "content-length beyond 64 bits",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length: 18446744073709551621\r\n\r\nhello",
    ),
    (
        "content-length without a value",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent-length:\r\n\r\n",
    ),
    // Transfer codings.
    (
        "an unknown coding",
        Refused(501),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked twice",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked in two fields",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\
         transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked hidden behind a vertical tab",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "transfer-encoding in HTTP/1.0",
        Refused(400),
        "POST /first-NN HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    // Fields that parsers split in different places.
    (
        "a blank in front of the colon",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a folded value",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a first field that begins with a blank",
        Refused(400),
        "GET /first-NN HTTP/1.1\r\n host: a\r\nhost: a\r\n\r\n",
    ),
    (
        "a line that ends with LF alone",
        Refused(400),
        "GET /first-NN HTTP/1.1\r\nhost: a\nx: y\r\n\r\n",
    ),
    (
        "a head that ends with LF alone",
        Refused(400),
        "GET /first-NN HTTP/1.1\r\nhost: a\r\n\nGET /smuggled-NN HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    (
        "CR within a value",
        Refused(400),
        "GET /first-NN HTTP/1.1\r\nhost: a\r\nx: y\rtransfer-encoding: chunked\r\n\r\n",
    ),
    ("NUL within a value", Refused(400), "GET /first-NN HTTP/1.1\r\nhost: a\r\nx: y\0z\r\n\r\n"),
    (
        "a control byte within a value",
        Refused(400),
        "GET /first-NN HTTP/1.1\r\nhost: a\r\nx: y\x08z\r\n\r\n",
    ),
    ("a field without a name", Refused(400), "GET /first-NN HTTP/1.1\r\nhost: a\r\n: y\r\n\r\n"),
    ("a field without a colon", Refused(400), "GET /first-NN HTTP/1.1\r\nhost: a\r\nx y\r\n\r\n"),
    (
        "a blank within a name",
        Refused(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ncontent length: 35\r\n\r\n",
    ),
    // Request lines and hosts.
    ("no host", Refused(400), "GET /first-NN HTTP/1.1\r\n\r\n"),
    ("two hosts", Refused(400), "GET /first-NN HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"),
    ("a host with a path in it", Refused(400), "GET /first-NN HTTP/1.1\r\nhost: a/b\r\n\r\n"),
    ("two blanks in the request line", Refused(400), "GET  /first-NN HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("a tab in the request line", Refused(400), "GET\t/first-NN HTTP/1.1\r\nhost: a\r\n\r\n"),
    (
        "words behind the version",
        Refused(400),
        "GET /first-NN HTTP/1.1 HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    ("a request of HTTP/0.9", Refused(400), "GET /first-NN\r\n\r\n"),
    ("an invalid version", Refused(400), "GET /first-NN HTTQ/1.1\r\nhost: a\r\n\r\n"),
    ("a version to come", Refused(505), "GET /first-NN HTTP/3.0\r\nhost: a\r\n\r\n"),
    (
        "what only begins as the preface of HTTP/2",
        RefusedAsHttp2,
        "PRI * HTTP/2.0\r\n\r\nGET /smuggled-NN HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    ("NUL in the path", Refused(400), "GET /first-NN%00 HTTP/1.1\r\nhost: a\r\n\r\n"),
    // Bodies that turn out to be wrong.
    (
        "a chunk size that is no number",
        RefusedInBody(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
         xyz\r\nGET /smuggled-NN HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    (
        "a chunk size with a prefix",
        RefusedInBody(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
         0x5\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "a chunk size beyond 64 bits",
        RefusedInBody(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
         10000000000000005\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "a chunk size that ends with LF alone",
        RefusedInBody(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
         5\nhello\r\n0\r\n\r\n",
    ),
    (
        "a chunk extension with LF in it",
        RefusedInBody(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
         5;a\nhello\r\n0\r\n\r\n",
    ),
    (
        "a chunk that is longer than it says",
        RefusedInBody(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
         5\r\nhello0\r\n\r\nGET /smuggled-NN HTTP/1.1\r\nhost: a\r\n\r\n",
    ),
    (
        "a chunk without its line's end",
        RefusedInBody(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
         5\r\nhello\n0\r\n\r\n",
    ),
    (
        "a blank in front of a chunk size",
        RefusedInBody(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
         \x205\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "a trailer that is no field",
        RefusedInBody(400),
        "POST /first-NN HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
         0\r\nGET /smuggled-NN HTTP/1.1\r\n\r\n",
    ),
];

/// Sends every row through a Strait in front of `upstream`, whose log `seen` reads.
pub(super) fn try_all(
    lab: &Lab,
    upstream: SocketAddr,
    bodies: Bodies,
    seen: impl Fn() -> String,
) -> Result<()> {
    let strait = Strait::in_front_of(lab, upstream)?;
    let long_line = format!("GET /first-NN{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(9_000));
    let large_head =
        format!("GET /first-NN HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "a".repeat(70_000));
    let made: [(&str, Fate, &str); 2] = [
        ("a line that is too long", Refused(414), &long_line),
        ("a head that is too large", Refused(431), &large_head),
    ];
    for (number, (name, fate, bytes)) in ROWS.iter().copied().chain(made).enumerate() {
        try_one(&strait, bodies, number, fate, bytes, &seen).with_context(|| name.to_owned())?;
    }
    Ok(())
}

fn try_one(
    strait: &Strait,
    bodies: Bodies,
    number: usize,
    fate: Fate,
    bytes: &str,
    seen: &impl Fn() -> String,
) -> Result<()> {
    let mark = |path: &str| format!("{path}-{number:02}");
    let bytes = bytes.replace("-NN", &mark(""));
    let mut client = Client::connect(strait.address())?;
    client.send(&bytes)?;
    let first = match fate {
        RefusedAsHttp2 => 0,
        _ => client.response()?.status,
    };
    match fate {
        Forwarded => {
            ensure!(first == 200, "answered {first}");
            client.send(format!("GET {} HTTP/1.1\r\nhost: a\r\n\r\n", mark("/then")))?;
            let then = client.response()?;
            ensure!(then.text().contains(&mark("/then")), "then: {} {}", then.status, then.text());
        }
        BothForwarded => {
            let second = client.response()?.status;
            ensure!((first, second) == (200, 200), "answered {first} and {second}");
        }
        Refused(status) => {
            ensure!(first == status, "answered {first} instead of {status}");
            client.expect_close()?;
        }
        RefusedAsHttp2 => {
            let said = client.rest()?;
            let is_goaway = said.windows(GOAWAY.len()).any(|part| part == GOAWAY);
            ensure!(is_goaway, "answered {}", said.escape_ascii());
        }
        RefusedInBody(status) => {
            let may_be_early = bodies == Bodies::AnsweredUnread && first == 200;
            ensure!(first == status || may_be_early, "answered {first} instead of {status}");
            client.expect_close()?;
        }
    }

    let after = client::get(strait.address(), &mark("/after"))?;
    ensure!(after.text().contains(&mark("/after")), "the next client got {}", after.text());
    let end = format!("GET {}", mark("/after"));
    wait::until("the upstream's log", wait::SOON, || seen().lines().any(|line| line == end))?;

    let log = seen();
    ensure!(!log.contains("BADREQ"), "HAProxy saw something that is no request");
    let paths: Vec<&str> = log
        .lines()
        .filter(|line| line.ends_with(&mark("")))
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|path| *path != mark("/after") && *path != mark("/then"))
        .collect();
    let expected = match fate {
        Forwarded => vec![mark("/first")],
        BothForwarded => vec![mark("/first"), mark("/second")],
        Refused(_) | RefusedAsHttp2 => vec![],
        RefusedInBody(_) if paths.is_empty() => vec![],
        RefusedInBody(_) => vec![mark("/first")],
    };
    ensure!(paths == expected, "the upstream saw {paths:?} instead of {expected:?}");
    Ok(())
}
