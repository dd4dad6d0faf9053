//! Messages that two implementations are known to read in different ways, and what each comes to
//! here. All of them also come in every cut into pieces.

use wire::h1::{BodyError, HeadError, HeadErrorKind};
use wire::head::{Framing, Method};

#[path = "checks/h1_chunked.rs"]
mod h1_chunked;
#[path = "checks/h1_head.rs"]
mod h1_head;

use HeadErrorKind::{Framing as Frame, Host, NotImplemented, Syntax, Target, Version};

/// A request with these field lines behind a valid `Host`.
fn with(lines: &str) -> Vec<u8> {
    format!("POST /a HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n").into_bytes()
}

fn kind_of(bytes: &[u8]) -> Option<HeadErrorKind> {
    h1_head::check(bytes);
    let verdict = h1_head::request(bytes);
    assert_ne!(verdict, Ok(None), "unfinished: {}", bytes.escape_ascii());
    verdict.err().map(HeadError::kind)
}

#[test]
fn ambiguous_field_lines_are_refused() {
    for (lines, kind) in [
        // Both lengths (CL.TE, TE.CL), in either order.
        ("Content-Length: 6\r\nTransfer-Encoding: chunked", Frame),
        ("Transfer-Encoding: chunked\r\nContent-Length: 6", Frame),
        ("Content-Length: 0\r\nTransfer-Encoding: chunked", Frame),
        ("Content-Length: 6\r\nTransfer-Encoding: xchunked", Frame),
        ("Content-Length: 6\r\nTransfer-Encoding: identity", Frame),
        ("Content-Length: 6\r\ntransfer-encoding:", Frame),
        // More than one length.
        ("Content-Length: 5\r\nContent-Length: 6", Frame),
        ("Content-Length: 5\r\nContent-Length: 5", Frame),
        ("Content-Length: 5\r\ncontent-length: 5", Frame),
        ("Content-Length: 5, 5", Frame),
        ("Content-Length: 5,6", Frame),
        // Lengths that are none.
        ("Content-Length:", Frame),
        ("Content-Length: +5", Frame),
        ("Content-Length: -5", Frame),
        ("Content-Length: 0x5", Frame),
        ("Content-Length: 5_0", Frame),
        ("Content-Length: 5 0", Frame),
        ("Content-Length: 5;a", Frame),
        ("Content-Length: \"5\"", Frame),
        ("Content-Length: 5.0", Frame),
        ("Content-Length: 1e3", Frame),
        ("Content-Length: five", Frame),
        ("Content-Length: \u{0665}", Frame),
        ("Content-Length: 9223372036854775808", Frame),
        ("Content-Length: 18446744073709551616", Frame),
        ("Content-Length: 18446744073709551621", Frame),
        // Transfer codings (TE.TE).
        ("Transfer-Encoding: xchunked", NotImplemented),
        ("Transfer-Encoding: identity", NotImplemented),
        ("Transfer-Encoding: gzip", NotImplemented),
        ("Transfer-Encoding: gzip, chunked", NotImplemented),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", NotImplemented),
        ("Transfer-Encoding: identity, chunked", NotImplemented),
        ("Transfer-Encoding: chunkedx", NotImplemented),
        ("Transfer-Encoding: chunked, identity", Frame),
        ("Transfer-Encoding: chunked, gzip", Frame),
        ("Transfer-Encoding: chunked, chunked", Frame),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Frame),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x", Frame),
        ("Transfer-Encoding: chunked\r\nTransfer-encoding: identity", Frame),
        ("Transfer-Encoding: gzip, chunked, gzip", Frame),
        ("Transfer-Encoding: chunked,", Frame),
        ("Transfer-Encoding: ,chunked", Frame),
        ("Transfer-Encoding:", Frame),
        ("Transfer-Encoding: \"chunked\"", Frame),
        ("Transfer-Encoding: chunked;q=1", Frame),
        ("Transfer-Encoding: chunked x", Frame),
        ("Transfer-Encoding: chun\u{212a}ed", Frame),
        // Names that some parsers repair.
        ("Transfer-Encoding : chunked", Syntax),
        ("Transfer-Encoding\t: chunked", Syntax),
        (" Transfer-Encoding: chunked", Syntax),
        ("\tTransfer-Encoding: chunked", Syntax),
        ("Transfer-Encoding\u{b}: chunked", Syntax),
        ("Transfer Encoding: chunked", Syntax),
        ("Content-Length\u{0}: 5", Syntax),
        ("\u{0}Content-Length: 5", Syntax),
        ("Content-Length : 5", Syntax),
        ("Content\u{e9}Length: 5", Syntax),
        ("\"Content-Length\": 5", Syntax),
        ("(x): 5", Syntax),
        (": 5", Syntax),
        ("no colon", Syntax),
        ("nocolon", Syntax),
        // Values with controls, which some parsers cut, strip or fold.
        ("Transfer-Encoding: \u{b}chunked", Syntax),
        ("Transfer-Encoding: \u{c}chunked", Syntax),
        ("Transfer-Encoding: chunked\u{b}", Syntax),
        ("Transfer-Encoding: chunked\u{0}", Syntax),
        ("X: a\u{0}b", Syntax),
        ("X: a\u{7f}b", Syntax),
        ("X: a\u{1b}b", Syntax),
        ("X: a\u{8}b", Syntax),
        // Lines that end or go on in their own way.
        ("X: a\nContent-Length: 5", Syntax),
        ("X: a\rContent-Length: 5", Syntax),
        ("X: a\r\r\nContent-Length: 5", Syntax),
        ("X: a\n\r\nContent-Length: 5", Syntax),
        ("X\r: a", Syntax),
        ("X\n: a", Syntax),
        ("X:\r a", Syntax),
        ("X:\n a", Syntax),
        ("Transfer-Encoding:\r\n chunked", Syntax),
        ("Transfer-Encoding: gzip,\r\n\tchunked", Syntax),
        ("X: a\r\n b", Syntax),
        ("\nX: a", Syntax),
        ("\rX: a", Syntax),
        // Connection options that are no list of names.
        ("Connection: a b", Syntax),
        ("Connection: close;a", Syntax),
        ("Connection: \"close\"", Syntax),
        // Hosts.
        ("Host: a", Host),
        ("host: b", Host),
    ] {
        let bytes = with(lines);
        assert_eq!(kind_of(&bytes), Some(kind), "{}", bytes.escape_ascii());
    }
}

#[test]
fn ambiguous_first_lines_are_refused() {
    for (bytes, kind) in [
        // Not exactly three parts with single spaces.
        ("GET  / HTTP/1.1", Syntax),
        ("GET /  HTTP/1.1", Syntax),
        (" GET / HTTP/1.1", Syntax),
        ("GET\t/ HTTP/1.1", Syntax),
        ("GET /\tHTTP/1.1", Syntax),
        ("GET / HTTP/1.1 ", Syntax),
        ("GET / HTTP/1.1\t", Syntax),
        ("GET /a b HTTP/1.1", Syntax),
        ("GET /", Syntax),
        ("GET", Syntax),
        ("GET / ", Syntax),
        (" / HTTP/1.1", Syntax),
        ("G\u{0}T / HTTP/1.1", Syntax),
        ("G:T / HTTP/1.1", Syntax),
        ("\u{16}\u{3}\u{1}", Syntax),
        // Versions.
        ("GET / HTTP/1.2", Version),
        ("GET / HTTP/0.9", Version),
        ("GET / HTTP/2.0", Version),
        ("GET / HTTP/9.9", Version),
        ("PRI * HTTP/2.0", Version),
        ("GET / HTTP/1,1", Syntax),
        ("GET / HTTP/11", Syntax),
        ("GET / HTTP/1.10", Syntax),
        ("GET / HTTP/01.1", Syntax),
        ("GET / http/1.1", Syntax),
        ("GET / HTTP /1.1", Syntax),
        ("GET / ICY/1.1", Syntax),
        // Targets.
        ("GET a HTTP/1.1", Target),
        ("GET ?a HTTP/1.1", Target),
        ("GET * HTTP/1.1", Target),
        ("OPTIONS *a HTTP/1.1", Target),
        ("OPTIONS *?a HTTP/1.1", Target),
        ("GET /#a HTTP/1.1", Target),
        ("GET /?a#b HTTP/1.1", Target),
        ("GET /\u{0} HTTP/1.1", Target),
        ("GET /\u{7f} HTTP/1.1", Target),
        ("GET /\u{e9} HTTP/1.1", Target),
        ("GET /?\u{e9} HTTP/1.1", Target),
        ("GET /a\\b HTTP/1.1", Target),
        ("GET /%0 HTTP/1.1", Target),
        ("GET /%00 HTTP/1.1", Target),
        ("GET /%zz HTTP/1.1", Target),
        ("GET http:/a HTTP/1.1", Target),
        ("GET http:// HTTP/1.1", Target),
        ("GET http:///a HTTP/1.1", Target),
        ("GET http://:80/ HTTP/1.1", Target),
        ("GET http://user@a/ HTTP/1.1", Target),
        ("GET http://a:b/ HTTP/1.1", Target),
        ("GET http://a,b/ HTTP/1.1", Target),
        ("GET ftp://a/ HTTP/1.1", Target),
        ("GET a:80 HTTP/1.1", Target),
        ("CONNECT / HTTP/1.1", Target),
        ("CONNECT http://a/ HTTP/1.1", Target),
        ("CONNECT a:80/ HTTP/1.1", Target),
        ("CONNECT a:80?b HTTP/1.1", Target),
    ] {
        let bytes = format!("{bytes}\r\nHost: a\r\n\r\n").into_bytes();
        assert_eq!(kind_of(&bytes), Some(kind), "{}", bytes.escape_ascii());
    }
}

#[test]
fn line_ends_of_the_first_line_are_exact() {
    for bytes in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
        "GET /\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\rX",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(kind_of(bytes.as_bytes()), Some(Syntax), "{}", bytes.escape_debug());
    }
}

#[test]
fn hosts_are_hosts() {
    for (bytes, error) in [
        ("GET / HTTP/1.1\r\n\r\n", HeadError::HostMissing),
        ("GET / HTTP/1.1\r\nX: a\r\n\r\n", HeadError::HostMissing),
        ("GET http://a/ HTTP/1.1\r\n\r\n", HeadError::HostMissing),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", HeadError::HostRepeated),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", HeadError::HostRepeated),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", HeadError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", HeadError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", HeadError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", HeadError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", HeadError::HostInvalid),
        ("GET http://a/ HTTP/1.1\r\nHost: b c\r\n\r\n", HeadError::HostInvalid),
        ("GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", HeadError::HostInvalid),
    ] {
        h1_head::check(bytes.as_bytes());
        assert_eq!(h1_head::request(bytes.as_bytes()), Err(error), "{}", bytes.escape_debug());
        assert_eq!(error.kind(), Host);
    }
}

#[test]
fn transfer_codings_do_not_exist_in_http_1_0() {
    let bytes = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(kind_of(bytes), Some(Frame));
    assert_eq!(h1_head::request(bytes), Err(HeadError::TransferEncodingInHttp10));
    let bytes = b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    h1_head::check(bytes);
    let verdict = h1_head::response(bytes, Method::Get);
    assert_eq!(verdict, Err(HeadError::TransferEncodingInHttp10));
}

#[test]
fn what_looks_odd_and_is_unambiguous_goes_on_in_plain_form() {
    for (lines, framing, sent_on) in [
        ("Content-Length: 5 ", Framing::Length(5), "Content-Length: 5"),
        ("Content-Length:5", Framing::Length(5), "Content-Length:5"),
        ("Content-Length: \t 5\t", Framing::Length(5), "Content-Length: 5"),
        ("Content-Length: 005", Framing::Length(5), "Content-Length: 005"),
        (
            "Content-Length: 9223372036854775807",
            Framing::Length(i64::MAX as u64),
            "Content-Length: 9223372036854775807",
        ),
        ("Transfer-Encoding:  Chunked\t", Framing::Chunked, "transfer-encoding: chunked"),
        ("tRANSFER-eNCODING:chunked", Framing::Chunked, "transfer-encoding: chunked"),
        // Names that only look like those that count.
        ("Content_Length: 5", Framing::None, "Content_Length: 5"),
        ("Content-Lengt: 5", Framing::None, "Content-Lengt: 5"),
        ("X-Transfer-Encoding: chunked", Framing::None, "X-Transfer-Encoding: chunked"),
        ("X: Content-Length: 5", Framing::None, "X: Content-Length: 5"),
        ("X: \u{e9}\u{85}", Framing::None, "X: \u{e9}\u{85}"),
        ("X:\ta", Framing::None, "X: a"),
        ("X:", Framing::None, "X:"),
        ("X: ", Framing::None, "X: "),
    ] {
        let bytes = with(lines);
        assert_eq!(kind_of(&bytes), None, "{}", bytes.escape_ascii());
        let request = h1_head::request(&bytes).unwrap().unwrap();
        assert_eq!(request.framing, framing, "{}", bytes.escape_ascii());
        assert_eq!(request.encoded, with(sent_on), "{}", request.encoded.escape_ascii());
    }
}

#[test]
fn essential_fields_cannot_be_nominated_away() {
    let lines = "Connection: host, content-length, authorization, cookie, x-forwarded-for, \
        forwarded, x-request-id, X-Mine, transfer-encoding\r\n\
        Content-Length: 5\r\nAuthorization: a\r\nCookie: b\r\nX-Forwarded-For: c\r\n\
        Forwarded: d\r\nX-Request-Id: e\r\nx-mine: f";
    let bytes = with(lines);
    assert_eq!(kind_of(&bytes), None);
    let request = h1_head::request(&bytes).unwrap().unwrap();
    let sent_on = with(
        "Content-Length: 5\r\nAuthorization: a\r\nCookie: b\r\nX-Forwarded-For: c\r\n\
        Forwarded: d\r\nX-Request-Id: e",
    );
    assert_eq!(request.encoded, sent_on, "{}", request.encoded.escape_ascii());
    assert_eq!(request.framing, Framing::Length(5));
}

#[test]
fn ambiguous_responses_are_refused() {
    for (bytes, kind) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", Frame),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", Frame),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", Frame),
        ("HTTP/1.1 204 OK\r\nContent-Length: x\r\n\r\n", Frame),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", Frame),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", NotImplemented),
        ("HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n", Syntax),
        ("HTTP/1.1 200 OK\r\n X: a\r\n\r\n", Syntax),
        ("HTTP/1.1 200 OK\nX: a\r\n\r\n", Syntax),
        ("HTTP/1.1 200 OK\rX: a\r\n\r\n", Syntax),
        ("HTTP/1.1 200 O\u{0}K\r\n\r\n", Syntax),
        ("HTTP/1.1 2000 OK\r\n\r\n", Syntax),
        ("HTTP/1.1 20 OK\r\n\r\n", Syntax),
        ("HTTP/1.1 099 OK\r\n\r\n", Syntax),
        ("HTTP/1.1 +20 OK\r\n\r\n", Syntax),
        ("HTTP/1.1  200 OK\r\n\r\n", Syntax),
        ("HTTP/1.1\t200 OK\r\n\r\n", Syntax),
        ("HTTP/1.1 200\tOK\r\n\r\n", Syntax),
        ("HTTP/1.1 200\n\r\n\r\n", Syntax),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", Syntax),
        ("HTTP/2.0 200 OK\r\n\r\n", Version),
        ("HTTP/2 200 OK\r\n\r\n", Syntax),
        ("ICY 200 OK\r\n\r\n", Syntax),
        ("<html>", Syntax),
    ] {
        h1_head::check(bytes.as_bytes());
        let verdict = h1_head::response(bytes.as_bytes(), Method::Get);
        assert_eq!(verdict.map_err(HeadError::kind), Err(kind), "{}", bytes.escape_debug());
    }
}

#[test]
fn ambiguous_chunks_are_refused() {
    use BodyError::{
        ChunkExtensionInvalid as Extension, ChunkLineBreakInvalid as LineBreak,
        ChunkLineTooLong as TooLong, ChunkSizeInvalid as Size, TrailerForbidden as Forbidden,
        TrailerInvalid as Trailer, TrailersTooLarge as TrailersLong,
    };
    for (bytes, error) in [
        // Sizes that are none.
        ("\r\n", Size),
        ("g\r\n", Size),
        ("+5\r\nhello\r\n0\r\n\r\n", Size),
        ("-5\r\nhello\r\n0\r\n\r\n", Size),
        ("0x5\r\nhello\r\n0\r\n\r\n", Size),
        (" 5\r\nhello\r\n0\r\n\r\n", Size),
        ("5 \r\nhello\r\n0\r\n\r\n", Size),
        ("5\t\r\nhello\r\n0\r\n\r\n", Size),
        ("5 ;a\r\nhello\r\n0\r\n\r\n", Size),
        ("5_0\r\n", Size),
        ("5,\r\n", Size),
        (";a\r\nhello", Size),
        ("\u{665}\r\n", Size),
        ("8000000000000000\r\n", Size),
        ("fffffffffffffffff\r\n", Size),
        ("10000000000000005\r\nhello", Size),
        // Size lines that end in their own way (TERM.EXT, EXT.TERM).
        ("5\nhello\r\n0\r\n\r\n", LineBreak),
        ("5\rhello\r\n0\r\n\r\n", LineBreak),
        ("5\r\rhello", LineBreak),
        ("5;a\nhello\r\n0\r\n\r\n", LineBreak),
        ("5;a\rhello\r\n0\r\n\r\n", LineBreak),
        ("2;\nxx\r\n4c\r\n0\r\n\r\nGET /admin", LineBreak),
        ("5;a\u{0}\r\nhello\r\n0\r\n\r\n", Extension),
        ("5;a\u{b}\r\nhello\r\n0\r\n\r\n", Extension),
        ("5;a\u{7f}\r\nhello\r\n0\r\n\r\n", Extension),
        ("5;aaaaaaaaaaaaaaaaaaaaaaa\r\nhello", TooLong),
        ("0000000000000000000000005\r\nhello", TooLong),
        // Data that does not end where the size says (SPILL).
        ("5\r\nhelloX\r\n0\r\n\r\n", LineBreak),
        ("5\r\nhello\n0\r\n\r\n", LineBreak),
        ("5\r\nhello\r0\r\n\r\n", LineBreak),
        ("5\r\nhello0\r\n\r\n", LineBreak),
        ("5\r\nhello\r\r\n0\r\n\r\n", LineBreak),
        ("5\r\nhell\r\n0\r\n\r\n", LineBreak),
        ("0\nX", LineBreak),
        ("0\rX", LineBreak),
        // Trailers.
        ("0\r\nContent-Length: 5\r\n\r\n", Forbidden),
        ("0\r\ntransfer-encoding: chunked\r\n\r\n", Forbidden),
        ("0\r\nHost: a\r\n\r\n", Forbidden),
        ("0\r\nTrailer: a\r\n\r\n", Forbidden),
        ("0\r\nConnection: close\r\n\r\n", Forbidden),
        ("0\r\nAuthorization: a\r\n\r\n", Forbidden),
        ("0\r\nX-Forwarded-For: a\r\n\r\n", Forbidden),
        ("0\r\nx: a\r\nCookie: a\r\n\r\n", Forbidden),
        ("0\r\nx : a\r\n\r\n", Trailer(HeadError::FieldSpaceBeforeColon)),
        ("0\r\nx: a\r\n b\r\n\r\n", Trailer(HeadError::LineFolded)),
        ("0\r\n x: a\r\n\r\n", Trailer(HeadError::LineFolded)),
        ("0\r\nx: a\n\r\n", Trailer(HeadError::LineBreakInvalid)),
        ("0\r\n\n", Trailer(HeadError::LineBreakInvalid)),
        ("0\r\n\rX", Trailer(HeadError::LineBreakInvalid)),
        ("0\r\nGET / HTTP/1.1\r\n\r\n", Trailer(HeadError::FieldSpaceBeforeColon)),
        ("0\r\nx: a\u{0}\r\n\r\n", Trailer(HeadError::FieldValueInvalid)),
        ("0\r\nx: 1\r\nx: 2\r\nx: 3\r\nx: 4\r\nx: 5\r\n\r\n", TrailersLong),
        (
            "0\r\nx: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
            TrailersLong,
        ),
    ] {
        h1_chunked::check(bytes.as_bytes());
        let body = h1_chunked::decoded(&[bytes.as_bytes()]);
        assert_eq!(body.error, Some(error), "{}", bytes.escape_debug());
    }
}

#[test]
fn chunks_of_any_legal_form_are_read() {
    for (bytes, data, trailers) in [
        ("0\r\n\r\n", "", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello", ""),
        ("5;a=b;c\r\nhello\r\n0;z\r\n\r\n", "hello", ""),
        ("5;a=\"q \u{e9}\"\r\nhello\r\n0\r\n\r\n", "hello", ""),
        ("005\r\nhello\r\n000\r\n\r\n", "hello", ""),
        ("A\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n", "0123456789x", ""),
        ("a\r\n0123456789\r\n0\r\nx: 1\r\nY:2\r\n\r\n", "0123456789", "x: 1\r\nY:2\r\n"),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n", ""),
    ] {
        let bytes = format!("{bytes}GET / HTTP/1.1");
        h1_chunked::check(bytes.as_bytes());
        let body = h1_chunked::decoded(&[bytes.as_bytes()]);
        assert!(body.is_complete, "{}", bytes.escape_debug());
        assert_eq!(body.data, data.as_bytes());
        assert_eq!(body.trailers, trailers.as_bytes());
        assert_eq!(&bytes[body.consumed..], "GET / HTTP/1.1");
    }
}
