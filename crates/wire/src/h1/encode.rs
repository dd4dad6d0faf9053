//! Heads: [`RequestHead`], [`ResponseHead`] ⇒ bytes.
//!
//! Unchanged lines are copied from the block, and neighbours among them as one run: the
//! usual head without anything changed is a single copy. The encoder alone writes what is for the
//! next hop: `Connection`, `Upgrade`, `TE`, `Transfer-Encoding`, and a `Content-Length` that the
//! head does not have.

use crate::buffer::Buffer;
use crate::head::{Framing, Head, Known, Method, RequestHead, ResponseHead, Version};

/// What the encoder writes about the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionField {
    /// Nothing: what the version implies.
    #[default]
    Default,
    /// This is the last message.
    Close,
    /// The connection stays open, for peers of HTTP/1.0 that do not imply it.
    KeepAlive,
    /// The connection changes to the protocols in the head's `Upgrade`.
    Upgrade,
}

/// Writes `head` to `out`, as HTTP/1.1 and in origin form (or `*`), whatever it came as.
///
/// A request without a host gets an empty `Host`, which HTTP/1.1 demands.
/// An extended `CONNECT` of HTTP/2 becomes the `GET` that it is in HTTP/1.1, which needs
/// [`ConnectionField::Upgrade`] and a `Sec-WebSocket-Key` of the caller's to mean the same.
///
/// # Panics
///
/// When `out` has less room than [`Head::encoded_len_max`] and the head needs it.
pub fn encode_request(head: &RequestHead<'_>, connection: ConnectionField, out: &mut Buffer) {
    let facts = &head.index.request;
    let mut run = Run { block: head.block, start: 0, end: 0 };
    match facts.line_end {
        Some(line_end) => run.end = line_end,
        None => request_line(head, out),
    }
    let options = Options {
        connection,
        accepts_trailers: facts.accepts_trailers,
        offers_upgrade: false,
        upgrade: head.upgrade().unwrap_or_default(),
    };
    let has_host = fields(head, facts.declared, facts.framing, &options, run, out);
    // It is written behind all others, since real clients do not send such requests.
    if !has_host {
        out.push(b"host: \r\n");
    }
    out.push(b"\r\n");
}

/// Writes `head` to `out` as a response of `version` whose body is delimited by `framing`.
///
/// # Panics
///
/// When `out` has less room than [`Head::encoded_len_max`] and the head needs it.
pub fn encode_response(
    head: &ResponseHead<'_>,
    version: Version,
    framing: Framing,
    connection: ConnectionField,
    out: &mut Buffer,
) {
    let facts = &head.index.response;
    let mut run = Run { block: head.block, start: 0, end: 0 };
    match facts.line_end {
        Some(line_end) if written_as(facts.version) == version => run.end = line_end,
        _ => status_line(version, facts.status, head.reason(), out),
    }
    let options = Options {
        connection,
        accepts_trailers: false,
        offers_upgrade: required_upgrade(head).is_some(),
        upgrade: head.upgrade().unwrap_or_default(),
    };
    fields(head, facts.framing, framing, &options, run, out);
    out.push(b"\r\n");
}

/// The protocols that a 426 asks its client to change to (RFC 9110, section 15.5.22), which it has to
/// name to every hop.
fn required_upgrade<'h>(head: &'h ResponseHead<'_>) -> Option<&'h [u8]> {
    head.upgrade().filter(|_| head.status() == 426)
}

/// The version that the line of a head in a block says.
fn written_as(version: Version) -> Version {
    match version {
        Version::Http10 => Version::Http10,
        Version::Http11 | Version::Http2 => Version::Http11,
    }
}

/// Writes the head of a response made from parts, as HTTP/1.1: the status, `fields` in order,
/// then `content-length` if there is one and what `connection` says. The body, if any, is the
/// caller's to push behind it.
///
/// # Panics
///
/// When `out` has less room than [`reply_len_max`] and the head needs it.
pub fn encode_reply(
    status: u16,
    fields: &[(&[u8], &[u8])],
    content_length: Option<u64>,
    connection: ConnectionField,
    out: &mut Buffer,
) {
    status_line(Version::Http11, status, reason_phrase(status), out);
    for (name, value) in fields {
        field(name, value, out);
    }
    if let Some(length) = content_length {
        field(b"content-length", Decimal::new(length).digits(), out);
    }
    let options =
        Options { connection, accepts_trailers: false, offers_upgrade: false, upgrade: b"" };
    options.push(out);
    out.push(b"\r\n");
}

/// No head that [`encode_reply`] writes with these fields takes more bytes than this.
#[must_use]
pub fn reply_len_max(fields: &[(&[u8], &[u8])]) -> usize {
    const OWN_BYTES_MAX: usize = 160;
    fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>() + OWN_BYTES_MAX
}

/// The standard phrase for a status (RFC 9110, section 15, and the registry it founds), or
/// nothing.
#[must_use]
pub fn reason_phrase(status: u16) -> &'static [u8] {
    match status {
        100 => b"Continue",
        101 => b"Switching Protocols",
        103 => b"Early Hints",
        200 => b"OK",
        201 => b"Created",
        202 => b"Accepted",
        203 => b"Non-Authoritative Information",
        204 => b"No Content",
        205 => b"Reset Content",
        206 => b"Partial Content",
        300 => b"Multiple Choices",
        301 => b"Moved Permanently",
        302 => b"Found",
        303 => b"See Other",
        304 => b"Not Modified",
        307 => b"Temporary Redirect",
        308 => b"Permanent Redirect",
        400 => b"Bad Request",
        401 => b"Unauthorized",
        402 => b"Payment Required",
        403 => b"Forbidden",
        404 => b"Not Found",
        405 => b"Method Not Allowed",
        406 => b"Not Acceptable",
        407 => b"Proxy Authentication Required",
        408 => b"Request Timeout",
        409 => b"Conflict",
        410 => b"Gone",
        411 => b"Length Required",
        412 => b"Precondition Failed",
        413 => b"Content Too Large",
        414 => b"URI Too Long",
        415 => b"Unsupported Media Type",
        416 => b"Range Not Satisfiable",
        417 => b"Expectation Failed",
        421 => b"Misdirected Request",
        422 => b"Unprocessable Content",
        425 => b"Too Early",
        426 => b"Upgrade Required",
        428 => b"Precondition Required",
        429 => b"Too Many Requests",
        431 => b"Request Header Fields Too Large",
        451 => b"Unavailable For Legal Reasons",
        500 => b"Internal Server Error",
        501 => b"Not Implemented",
        502 => b"Bad Gateway",
        503 => b"Service Unavailable",
        504 => b"Gateway Timeout",
        505 => b"HTTP Version Not Supported",
        511 => b"Network Authentication Required",
        _ => b"",
    }
}

/// Bytes of the block that wait to be copied together.
struct Run<'b> {
    block: &'b [u8],
    start: u32,
    end: u32,
}

impl Run<'_> {
    /// Takes in a whole line, copying what waits if that is not its neighbour.
    fn extend(&mut self, start: u32, end: u32, out: &mut Buffer) {
        if start != self.end {
            self.flush(out);
            self.start = start;
        }
        self.end = end;
    }

    fn flush(&mut self, out: &mut Buffer) {
        if self.start < self.end {
            let bytes = self.block.get(self.start as usize..self.end as usize);
            out.push(bytes.unwrap_or_default());
        }
        self.start = self.end;
    }
}

/// Writes the live fields and those of the encoder, and says whether `Host` was among them.
fn fields<K>(
    head: &Head<'_, K>,
    declared: Framing,
    framing: Framing,
    options: &Options<'_>,
    mut run: Run<'_>,
    out: &mut Buffer,
) -> bool {
    let mut has_host = false;
    let mut has_length = false;
    for entry in &head.index.fields {
        match entry.known {
            Known::Host => has_host = true,
            Known::ContentLength if !keeps_length(declared, framing) => continue,
            Known::ContentLength => has_length = true,
            _ => {}
        }
        if let Some(line_end) = entry.line_end() {
            run.extend(entry.name_start, line_end, out);
        } else {
            run.flush(out);
            field(head.bytes(entry.name()), head.bytes(entry.value()), out);
        }
    }
    run.flush(out);
    match framing {
        Framing::Chunked => out.push(b"transfer-encoding: chunked\r\n"),
        Framing::Length(length) if !has_length => {
            field(b"content-length", Decimal::new(length).digits(), out);
        }
        Framing::Length(_) | Framing::None | Framing::UntilClose => {}
    }
    options.push(out);
    has_host
}

/// Whether a `Content-Length` that came with `declared` is right for what goes on.
///
/// Where there is no body it is kept: the answer to `HEAD`, and a 304, say by it how long the body
/// would have been.
pub(crate) fn keeps_length(declared: Framing, framing: Framing) -> bool {
    match framing {
        Framing::None | Framing::Length(_) => declared == framing,
        Framing::Chunked | Framing::UntilClose => false,
    }
}

/// The hop-by-hop fields that the encoder writes.
struct Options<'a> {
    connection: ConnectionField,
    accepts_trailers: bool,
    /// Whether `Upgrade` is named though the connection does not change.
    offers_upgrade: bool,
    upgrade: &'a [u8],
}

impl Options<'_> {
    #[inline]
    fn push(&self, out: &mut Buffer) {
        let is_default = self.connection == ConnectionField::Default;
        if !is_default || self.accepts_trailers || self.offers_upgrade {
            self.push_named(out);
        }
    }

    fn push_named(&self, out: &mut Buffer) {
        let names_upgrade = self.connection == ConnectionField::Upgrade || self.offers_upgrade;
        // A sender nominates its fields for the next hop (RFC 9110, section 7.6.1).
        let options = [
            (self.connection == ConnectionField::Close, &b"close"[..]),
            (self.connection == ConnectionField::KeepAlive, b"keep-alive"),
            (names_upgrade, b"upgrade"),
            (self.accepts_trailers, b"te"),
        ];
        let mut named = options.into_iter().filter(|(is_named, _)| *is_named);
        let Some((_, first)) = named.next() else { return };
        out.push(b"connection: ");
        out.push(first);
        for (_, option) in named {
            out.push(b", ");
            out.push(option);
        }
        out.push(b"\r\n");
        if names_upgrade {
            field(b"upgrade", self.upgrade, out);
        }
        if self.accepts_trailers {
            out.push(b"te: trailers\r\n");
        }
    }
}

fn request_line(head: &RequestHead<'_>, out: &mut Buffer) {
    let is_extended_connect = head.is_extended_connect();
    out.push(if is_extended_connect { b"GET" } else { head.method_bytes() });
    out.push(b" ");
    if head.method() == Method::Connect && !is_extended_connect {
        out.push(head.authority());
    }
    out.push(head.path());
    if let Some(query) = head.query() {
        out.push(b"?");
        out.push(query);
    }
    out.push(b" HTTP/1.1\r\n");
}

fn status_line(version: Version, status: u16, reason: &[u8], out: &mut Buffer) {
    out.push(match version {
        Version::Http10 => b"HTTP/1.0 ",
        Version::Http11 | Version::Http2 => b"HTTP/1.1 ",
    });
    out.push(Decimal::new(u64::from(status)).digits());
    out.push(b" ");
    out.push(reason);
    out.push(b"\r\n");
}

fn field(name: &[u8], value: &[u8], out: &mut Buffer) {
    out.push(name);
    out.push(b": ");
    out.push(value);
    out.push(b"\r\n");
}

/// A number in decimal digits, without an allocation.
pub(crate) struct Decimal {
    bytes: [u8; 20],
    start: usize,
}

impl Decimal {
    pub(crate) fn new(mut number: u64) -> Self {
        let mut this = Self { bytes: [b'0'; 20], start: 20 };
        for (place, digit) in this.bytes.iter_mut().enumerate().rev() {
            let value = (number % 10) as u8;
            *digit = b'0' + value;
            this.start = place;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        this
    }

    pub(crate) fn digits(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::{HeadLimits, Scan, decode_request, decode_response};
    use crate::head::HeadIndex;
    use crate::path::Slashes;

    const LIMITS: HeadLimits = HeadLimits {
        request_line_bytes_max: 100,
        head_bytes_max: 1000,
        fields_max: 50,
        slashes: Slashes::Keep,
    };

    fn request(
        input: &str,
        connection: ConnectionField,
        change: impl FnOnce(&mut RequestHead<'_>),
    ) -> String {
        let mut index = HeadIndex::default();
        let head = decode_request(input.as_bytes(), &mut Scan::default(), &LIMITS, &mut index);
        let (mut head, _) = head.unwrap().unwrap();
        change(&mut head);
        let mut out = Buffer::new(head.encoded_len_max());
        encode_request(&head, connection, &mut out);
        String::from_utf8(out.filled().to_vec()).unwrap()
    }

    fn response(input: &str, to: Method, version: Version, framing: Option<Framing>) -> String {
        let mut index = HeadIndex::default();
        let head = decode_response(input.as_bytes(), &mut Scan::default(), &LIMITS, &mut index, to);
        let (head, _) = head.unwrap().unwrap();
        let mut out = Buffer::new(head.encoded_len_max());
        let framing = framing.unwrap_or_else(|| head.framing());
        encode_response(&head, version, framing, ConnectionField::Default, &mut out);
        String::from_utf8(out.filled().to_vec()).unwrap()
    }

    #[test]
    fn a_request_goes_on_with_what_was_changed() {
        let input = "GET /a?b HTTP/1.1\r\nHost: a\r\nA: 1\r\nConnection: keep-alive\r\nB: 2\r\n\
            C:  3\r\nD: 4\r\n\r\n";
        let untouched = request(input, ConnectionField::Default, |_| {});
        let expected = "GET /a?b HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\n";
        assert_eq!(untouched, expected);
        let changed = request(input, ConnectionField::Close, |head| {
            head.set_path(b"/x");
            head.set(b"b", b"two");
            head.remove(b"a");
            head.append(b"e", b"5");
        });
        let expected = "GET /x?b HTTP/1.1\r\nHost: a\r\nb: two\r\nC: 3\r\nD: 4\r\ne: 5\r\n\
            connection: close\r\n\r\n";
        assert_eq!(changed, expected);
    }

    #[test]
    fn a_request_of_http_1_0_becomes_one_of_http_1_1() {
        let sent_on = request("GET / HTTP/1.0\r\nA: 1\r\n\r\n", ConnectionField::Default, |_| {});
        assert_eq!(sent_on, "GET / HTTP/1.1\r\nA: 1\r\nhost: \r\n\r\n");
        let sent_on = request("GET / HTTP/1.0\r\n\r\n", ConnectionField::Default, |head| {
            head.set_authority(b"b");
        });
        assert_eq!(sent_on, "GET / HTTP/1.1\r\nhost: b\r\n\r\n");
    }

    #[test]
    fn the_connection_field_is_rewritten() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\n";
        let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
        for (lines, connection, expected) in [
            ("", ConnectionField::Default, ""),
            ("", ConnectionField::KeepAlive, "connection: keep-alive\r\n"),
            ("", ConnectionField::Close, "connection: close\r\n"),
            (upgrade, ConnectionField::Default, ""),
            (upgrade, ConnectionField::Upgrade, "connection: upgrade\r\nupgrade: websocket\r\n"),
            ("TE: trailers\r\n", ConnectionField::Default, "connection: te\r\nte: trailers\r\n"),
            (
                "TE: trailers\r\n",
                ConnectionField::Close,
                "connection: close, te\r\nte: trailers\r\n",
            ),
            (
                "TE: trailers\r\n",
                ConnectionField::KeepAlive,
                "connection: keep-alive, te\r\nte: trailers\r\n",
            ),
            (
                "TE: trailers\r\nConnection: upgrade\r\nUpgrade: a\r\n",
                ConnectionField::Upgrade,
                "connection: upgrade, te\r\nupgrade: a\r\nte: trailers\r\n",
            ),
        ] {
            let sent_on = request(&format!("{head}{lines}\r\n"), connection, |_| {});
            assert_eq!(sent_on, format!("{head}{expected}\r\n"), "{lines} {connection:?}");
        }
    }

    #[test]
    fn the_length_that_goes_on_is_that_of_the_framing() {
        let with = |length: &str| format!("PUT / HTTP/1.1\r\nHost: a\r\n{length}\r\n");
        for (length, framing, expected) in [
            ("Content-Length: 5\r\n", Framing::Length(5), "Content-Length: 5\r\n"),
            ("Content-Length: 5\r\n", Framing::Length(6), "content-length: 6\r\n"),
            ("Content-Length: 5\r\n", Framing::Chunked, "transfer-encoding: chunked\r\n"),
            ("Content-Length: 5\r\n", Framing::None, ""),
            ("Transfer-Encoding: chunked\r\n", Framing::Length(0), "content-length: 0\r\n"),
            (
                "Transfer-Encoding: chunked\r\n",
                Framing::Length(u64::MAX),
                "content-length: 18446744073709551615\r\n",
            ),
            ("", Framing::Chunked, "transfer-encoding: chunked\r\n"),
        ] {
            let sent_on =
                request(&with(length), ConnectionField::Default, |head| head.set_framing(framing));
            assert_eq!(sent_on, with(expected), "{length} {framing:?}");
        }
    }

    #[test]
    fn a_response_goes_on_in_the_version_and_framing_of_the_other_side() {
        let length = "HTTP/1.1 200 Fine\r\nA: 1\r\nContent-Length: 5\r\nB: 2\r\n\r\n";
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let plain = "HTTP/1.1 200 OK\r\n\r\n";
        for (input, to, version, framing, expected) in [
            (length, Method::Get, Version::Http11, None, length.to_owned()),
            (length, Method::Head, Version::Http11, None, length.to_owned()),
            (length, Method::Get, Version::Http10, None, length.replace("/1.1", "/1.0")),
            (
                length,
                Method::Get,
                Version::Http11,
                Some(Framing::Chunked),
                "HTTP/1.1 200 Fine\r\nA: 1\r\nB: 2\r\ntransfer-encoding: chunked\r\n\r\n".into(),
            ),
            (
                chunked,
                Method::Get,
                Version::Http10,
                Some(Framing::UntilClose),
                plain.replace("/1.1", "/1.0"),
            ),
            (
                plain,
                Method::Get,
                Version::Http11,
                Some(Framing::Chunked),
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".into(),
            ),
            (
                "HTTP/1.1 200\r\n\r\n",
                Method::Head,
                Version::Http11,
                None,
                "HTTP/1.1 200 \r\n\r\n".into(),
            ),
            (
                "HTTP/1.0 304 \r\nContent-Length: 9\r\n\r\n",
                Method::Get,
                Version::Http11,
                None,
                "HTTP/1.1 304 \r\nContent-Length: 9\r\n\r\n".into(),
            ),
            (
                "HTTP/1.1 204 x\r\nContent-Length: 0\r\n\r\n",
                Method::Get,
                Version::Http11,
                None,
                "HTTP/1.1 204 x\r\n\r\n".into(),
            ),
        ] {
            assert_eq!(response(input, to, version, framing), expected, "{input}");
        }
    }

    #[test]
    fn a_reply_is_made_from_its_parts() {
        let fields: [(&[u8], &[u8]); 2] =
            [(b"server", b"strait"), (b"content-type", b"text/plain")];
        let mut out = Buffer::new(reply_len_max(&fields));
        encode_reply(503, &fields, Some(12), ConnectionField::Close, &mut out);
        let expected: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nserver: strait\r\n\
            content-type: text/plain\r\ncontent-length: 12\r\nconnection: close\r\n\r\n";
        assert_eq!(out.filled(), expected);
        out.clear();
        encode_reply(100, &[], None, ConnectionField::Default, &mut out);
        assert_eq!(out.filled(), b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    #[test]
    fn no_reply_is_longer_than_its_bound() {
        for status in 100..=999 {
            let mut out = Buffer::new(reply_len_max(&[]));
            encode_reply(status, &[], Some(u64::MAX), ConnectionField::KeepAlive, &mut out);
        }
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 1, 9, 10, 99, 100, 1024, u64::MAX] {
            assert_eq!(Decimal::new(number).digits(), number.to_string().as_bytes());
        }
    }
}
