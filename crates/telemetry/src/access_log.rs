//! The access log: one line for each finished exchange.
//!
//! The fields are declared once, in [`FIELDS`], and both forms of a line and the documentation
//! follow that table. Text of peers stays inside its quotes whatever it holds: see
//! [`json`] and [`text`] for what each form does with bytes that are not plain.

use std::fmt::Write as _;

use crate::events::{ExchangeFinished, Fault, GrpcCall, Stages};
use crate::names::NameHistory;

mod clock;
mod json;
mod number;
pub(crate) mod style;
mod text;

pub(crate) use clock::Clock;
pub(crate) use json::{write_line as write_json, write_members as write_json_members};
pub(crate) use number::push_tenths;
pub(crate) use style::{LogStyle, Selected};
pub(crate) use text::{push_escaped, write_combined, write_line as write_text};

/// An exchange with the names of its labels.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) event: ExchangeFinished<'a>,
    pub(crate) listener: &'a str,
    pub(crate) route: &'a str,
    pub(crate) rule: &'a str,
    pub(crate) cluster: &'a str,
}

impl<'a> Line<'a> {
    fn grpc_number(&self, of: impl FnOnce(GrpcCall) -> Option<u64>) -> Value<'_> {
        self.event.grpc.and_then(of).map_or(Value::Absent, Value::Number)
    }

    /// The line for an exchange; a label without a name has an empty one.
    pub(crate) fn new(event: ExchangeFinished<'a>, names: &'a NameHistory) -> Self {
        let route = event.rule.and_then(|(table, _)| names.route(table));
        let rule = event.rule.and_then(|(table, slot)| names.rule(table, slot));
        Self {
            listener: names.listener(event.listener).map_or("", |name| name),
            route: route.map_or("", |route| &route.name),
            rule: rule.unwrap_or_default(),
            cluster: event.cluster.and_then(|id| names.cluster(id)).map_or("", |name| name),
            event,
        }
    }
}

/// A field of a line.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// The name as JSON writes it, so that a line costs one copy for it.
    json_key: &'static str,
    /// The name as text writes it.
    text_key: &'static str,
    /// Whether the text form has it in its beginning and not as a pair.
    is_in_beginning: bool,
    doc: &'static str,
    value: for<'l> fn(&'l Line<'_>) -> Value<'l>,
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Field").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A field's value. Empty text and zero times are absent.
#[derive(Clone, Copy, Debug)]
enum Value<'l> {
    /// The field is left out.
    Absent,
    /// Bytes of a peer.
    Bytes(&'l [u8]),
    /// Text that we or the configuration chose.
    Text(&'l str),
    Number(u64),
    /// A length in ns, written in µs.
    Length(u64),
    /// A moment, ns since the Unix epoch.
    Time(u64),
    /// Written only if it is so.
    IsTrue,
}

impl<'l> Value<'l> {
    fn number_if(value: u64, is_there: bool) -> Self {
        if is_there { Self::Number(value) } else { Self::Absent }
    }

    fn length(ns: u64) -> Self {
        if ns == 0 { Self::Absent } else { Self::Length(ns) }
    }

    fn bytes(bytes: &'l [u8]) -> Self {
        if bytes.is_empty() { Self::Absent } else { Self::Bytes(bytes) }
    }

    fn text(text: &'l str) -> Self {
        if text.is_empty() { Self::Absent } else { Self::Text(text) }
    }

    fn flag(is_true: bool) -> Self {
        if is_true { Self::IsTrue } else { Self::Absent }
    }
}

/// Declares the fields, so that a name is written once.
macro_rules! fields {
    ($($name:literal $place:ident $doc:literal $value:expr;)*) => {
        /// The fields of a line, in their order.
        pub(crate) static FIELDS: &[Field] = &[$(Field {
            name: $name,
            json_key: concat!("\"", $name, "\":"),
            text_key: concat!(" ", $name, "="),
            is_in_beginning: fields!(@ $place),
            doc: $doc,
            value: $value,
        },)*];
    };
    (@ beginning) => { true };
    (@ pair) => { false };
}

fields! {
    "time" beginning "Time of the request's first byte, UTC, with microseconds (text: seconds)."
        |line| Value::Time(line.event.started_at);
    "client" beginning "The client's address, from the connection or from a trusted proxy."
        |line| Value::bytes(line.event.client);
    "method" beginning "The request's method, as received."
        |line| Value::bytes(line.event.method);
    "target" beginning "The normalised path with its query, truncated to 1,024 bytes."
        |line| Value::bytes(line.event.target);
    "protocol" beginning "The request's version of HTTP; TCP for a relayed connection, TLS if it began with a ClientHello; RPC for a call of an RPC protocol."
        |line| Value::text(protocol(line.event.version));
    "status" beginning "The status sent to the client; absent if none was sent."
        |line| Value::number_if(u64::from(line.event.status), line.event.status != 0);
    "response_bytes" beginning "Body bytes sent to the client (for a tunnel: all bytes)."
        |line| Value::Number(line.event.response_bytes);
    "request_bytes" pair "Body bytes received from the client (for a tunnel: all bytes)."
        |line| Value::Number(line.event.request_bytes);
    "host" pair "The request's host, as received, or the server name of a relayed TLS client."
        |line| Value::bytes(line.event.host);
    "request_id" pair "`x-request-id`."
        |line| Value::bytes(line.event.request_id);
    "listener" pair "Name of the listener."
        |line| Value::text(line.listener);
    "route" pair "Name of the route table, if a rule matched."
        |line| Value::text(line.route);
    "rule" pair "That rule, as metrics call it: its name, or what it matches; of several rules with the same text, the later ones have ` (2)`, ` (3)` behind it."
        |line| Value::text(line.rule);
    "cluster" pair "Name of the cluster, if the rule forwards to one."
        |line| Value::text(line.cluster);
    "subset" pair "Keys and values of the subset of endpoints that the request selected, if it exists: `unit=a,version=v2`."
        |line| Value::bytes(line.event.subset);
    "endpoint" pair "Address of the endpoint that was selected last."
        |line| Value::bytes(line.event.endpoint);
    "attempts" pair "Upstream attempts, if any were made."
        |line| Value::number_if(u64::from(line.event.attempts), line.event.attempts != 0);
    "failed_attempts" pair "Endpoint and cause of each failed attempt except the last, in order: \
        `10.0.0.1:80 connect_failed, 10.0.0.2:80 upstream_closed`. `endpoint` is that of the last attempt."
        |line| Value::bytes(line.event.failed_attempts);
    "cause" pair "The cause of a failure, from the list in METRICS.md."
        |line| line.event.cause.map_or(Value::Absent, |cause| Value::Text(cause.as_str()));
    "cause_detail" pair "Details of the cause, truncated to 160 bytes: code and text of an upstream's GOAWAY, the code of a reset, the error of a connect, \
        FIN or the error that ended a connection, why a TLS handshake failed, the option of a timeout and its value, the rule that a \
        message violates and up to 64 bytes of the message, the protocol that an upstream speaks instead of the expected one."
        |line| Value::bytes(line.event.cause_detail);
    "reply" pair "`true` if Strait generated the response."
        |line| Value::flag(line.event.is_reply);
    "grpc_status" pair "`grpc-status` of a gRPC call, if it ended with one."
        |line| line.grpc_number(|call| call.status.map(u64::from));
    "grpc_request_messages" pair "Messages of a gRPC call from the client."
        |line| line.grpc_number(|call| Some(call.request_messages));
    "grpc_response_messages" pair "Messages of a gRPC call to the client."
        |line| line.grpc_number(|call| Some(call.response_messages));
    "tunnel" pair "`true` if the exchange became a tunnel."
        |line| Value::flag(line.event.is_tunnel);
    "duration_us" pair "From the first byte of the head to the last response byte written, µs."
        |line| Value::Length(line.event.stages.total);
    "accept_us" pair "From accept to the first byte of the connection, µs (only for the first request \
        of a connection)."
        |line| Value::length(line.event.stages.accept);
    "read_head_us" pair "From the first byte of the head to its last, µs."
        |line| Value::length(line.event.stages.read_head);
    "route_us" pair "Filters, routing and encoding, including time in which a filter waits, µs."
        |line| Value::length(line.event.stages.route);
    "request_body_us" pair "Time in which Strait waited only for the client to send more of the request body, µs."
        |line| Value::length(line.event.stages.request_body);
    "retries_us" pair "Earlier attempts of the request, and the pauses between them, µs."
        |line| Value::length(line.event.stages.retries);
    "pool_wait_us" pair "Waiting for a pooled connection, µs."
        |line| Value::length(line.event.stages.pool_wait);
    "connect_us" pair "Establishing an upstream connection, µs."
        |line| Value::length(line.event.stages.connect);
    "upstream_write_us" pair "From the first request byte written to the upstream's socket to the \
        last, or to the first byte of the response if that came earlier, without `request_body_us`, µs."
        |line| Value::length(line.event.stages.upstream_write);
    "first_byte_us" pair "From the end of `upstream_write_us` to the first byte of the response, without `request_body_us`, µs."
        |line| Value::length(line.event.stages.first_byte);
    "response_us" pair "From the first byte of the response to its last, without time in which Strait stopped reading because the client did \
        not read, µs."
        |line| Value::length(line.event.stages.response);
    "downstream_write_us" pair "Time in which Strait stopped reading because the client did not read, and from the last response byte read to the last one written, µs."
        |line| Value::length(line.event.stages.downstream_write);
    "server_name" pair "The server name (SNI) of TLS that Strait terminated."
        |line| Value::bytes(line.event.server_name);
    "tls_version" pair "The version of TLS that Strait terminated: `TLSv1.2` or `TLSv1.3`."
        |line| Value::bytes(line.event.tls_version);
    "tls_cipher" pair "The cipher suite of that TLS connection, by its name in IANA's registry."
        |line| Value::bytes(line.event.tls_cipher);
    "peer_identity" pair "The identity in the client's certificate: its first URI, or host name, or its subject."
        |line| Value::bytes(line.event.peer_identity);
    "user_agent" pair "`user-agent`, truncated to 256 bytes."
        |line| Value::bytes(line.event.user_agent);
}

/// How the request's version is written.
const fn protocol(version: u8) -> &'static str {
    match version {
        1 => "TCP",
        2 => "TLS",
        3 => "RPC",
        10 => "HTTP/1.0",
        11 => "HTTP/1.1",
        20 => "HTTP/2.0",
        30 => "HTTP/3.0",
        _ => "",
    }
}

/// The names of the fields of a line, in their order.
pub fn field_names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.name)
}

/// Whether a character of UTF-8 beyond ASCII is written as it is: not one that a terminal acts on, ends a line, or turns
/// the direction of what follows.
fn is_shown(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
}

/// Whether a byte is printable ASCII and neither quote nor backslash.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e) && byte != b'"' && byte != b'\\'
}

/// Whether all bytes are plain; branch-free, since nearly all of them are.
fn are_plain(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |so_far, byte| so_far & is_plain(*byte))
}

const HEX: [u8; 16] = *b"0123456789abcdef";

/// The two digits of a byte.
fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| HEX.get(usize::from(digit)).copied().unwrap_or(b'0'))
}

/// `docs/access-log.md`.
#[must_use]
pub fn reference() -> String {
    let sample = ExchangeFinished {
        client: b"192.0.2.7",
        method: b"GET",
        target: b"/api/items?page=2",
        host: b"shop.example.com",
        request_id: b"7f3c1e0a-5d7b-4a51-9d3e-0c6f5d1f2a10",
        user_agent: b"curl/7.88.1",
        server_name: b"",
        tls_version: b"",
        tls_cipher: b"",
        peer_identity: b"",
        subset: b"version=v2",
        endpoint: b"127.0.0.1:9000",
        listener: crate::events::LabelId::default(),
        rule: Some((crate::events::LabelId::default(), 1)),
        weighted: None,
        cluster: Some(crate::events::LabelId::default()),
        version: 11,
        status: 200,
        cause: None,
        failures: 0,
        fault: Fault::None,
        endpoint_id: None,
        cause_detail: b"",
        failed_attempts: b"",
        captures: b"",
        is_reply: false,
        request_bytes: 0,
        response_bytes: 1024,
        attempts: 1,
        grpc: None,
        is_tunnel: false,
        started_at: 1_795_234_467_123_456_000,
        stages: Stages {
            read_head: 1_200,
            route: 800,
            upstream_write: 6_500,
            first_byte: 184_000,
            response: 2_300,
            downstream_write: 7_150,
            total: 201_950,
            ..Stages::default()
        },
    };
    let line =
        Line { event: sample, listener: "edge", route: "shop", rule: "items", cluster: "api" };
    let mut clock = Clock::default();
    let (mut json, mut text) = (Vec::new(), Vec::new());
    let style = LogStyle::all(style::LogFormat::Json);
    write_json(&line, &style, &mut clock, &mut json);
    write_text(&line, &style, &mut clock, &mut text);
    let mut combined = Vec::new();
    write_combined(&line, &style, &mut clock, &mut combined);

    let mut page = String::from(REFERENCE_HEAD);
    page.push_str("\n## Fields\n\n| field | text form | content |\n|---|---|---|\n");
    for field in FIELDS {
        let place = if field.is_in_beginning { "beginning" } else { "pair" };
        let _ = writeln!(page, "| `{}` | {place} | {} |", field.name, field.doc);
    }
    let _ = write!(
        page,
        "\n## Examples\n\n```json\n{}```\n\n```text\n{}```\n\n`format: combined`:\n\n```text\n{}```\n",
        String::from_utf8_lossy(&json),
        String::from_utf8_lossy(&text),
        String::from_utf8_lossy(&combined)
    );
    page
}

const REFERENCE_HEAD: &str = r#"# The access log

Generated from the declarations in `crates/telemetry/src/access_log.rs`; `BLESS=1 cargo test -p telemetry` rewrites it.

The access log has one line for each finished exchange, in the order in which exchanges end on their worker; lines of different workers
are interleaved. Workers pass compact entries to the log thread through a bounded queue and never wait for it: entries that do not
fit are dropped and counted in `strait_access_log_dropped_total`. Another thread writes to the output. Lines that the output does not accept are
lost and counted in `strait_access_log_lines_lost_total`: after an error, or when the output has accepted nothing for a second. A reload can select another output
at any time.

`json` writes one object on each line. Fields are in the order below; absent fields are omitted. Durations are in µs with one
decimal, counts are integers.

`text` writes a beginning in the Common Log Format, `client - - [time] "method target protocol" status response_bytes`
with `-` for absent values, and then the other fields as `name=value`, with text in quotes.

`combined` writes the Combined Log Format of Apache and nginx: that beginning, `referer` and `user-agent`.

`access_log.fields` selects the fields of `json` and `text`, and their order. It may contain header fields, as `request_headers.NAME` and
`response_headers.NAME`. The log has the first value of a header field: of the request before the filters, but with the `x-forwarded-*` fields that Strait sends; and of the
response as the client gets it. Responses that Strait generates have no header fields in the log. `access_log.only` and `access_log.except` select the exchanges that are logged.

No peer can break a line or forge another. UTF-8 text is written unchanged, except for quotes, backslashes, control characters and characters that change the
direction of text: in JSON they are `\uXXXX`, in text their bytes are `\xXX`. A byte that is not part of valid UTF-8 is `\xXX` in both formats (in JSON, the backslash is escaped). In the beginning of `text`, whose values are separated by spaces, a space within a value is escaped, too. Long values are truncated: the target at 1,024 bytes, the user agent at 256,
the host at 264, the subset at 256, the request id at 128, the detail of a cause at 160, addresses at 112, the method at 32.

During an upgrade two processes write to the same output. In a file their lines never mix. On a pipe or socket, as `stdout` usually is, lines of at most 4,096 bytes do not:
a longer one, which takes several long header fields in `access_log.fields`, may have lines of the other process within it.

A line is written when the last byte of the response was passed to the kernel, before the client has received it: `status` and `response_bytes`
show what was sent, not what arrived. If a client does not read all of it, the line does not show that;
`strait_downstream_connections_ended_total{cause="response_undelivered"}` counts such connections, and
`strait_downstream_undelivered_bytes_total` the lost bytes.

A connection that failed before its first request has a line without `method`, `target` and `protocol`: if it was refused, its
TLS handshake failed, or its first bytes were invalid. The line has `client`, `cause` and `cause_detail`; `server_name` if the ClientHello was read that far; and `duration_us`, which begins at
accept. Each worker writes at most 20 of these lines a second and counts the others in `strait_access_log_connections_left_out_total`. A connection that sent
nothing has no line.

With or without an access log, the program's own log has a warning when requests fail because of an upstream or a limit of Strait:
at most one a minute for each cluster and cause, with the number of failures, and the endpoint and detail of the last one.

A stage that an exchange did not have is absent. Without stage times, only `duration_us` is present.

`/slow` of the admin interface shows the 32 longest requests of the last five to ten minutes, but no tunnels, also without an access
log: as text with a row for each stage, or as JSON whose `requests` are objects with the fields below and `percent`,
the share of each stage in the duration. `other` is the time outside all stages.
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_record::TARGET_BYTES_MAX;
    use crate::sample::exchange;

    /// Every kind of byte at every place where a peer's text goes.
    fn with_hostile_text(text: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let event = ExchangeFinished {
            endpoint: text,
            client: text,
            method: text,
            target: text,
            host: text,
            request_id: text,
            user_agent: text,
            server_name: b"",
            tls_version: b"",
            tls_cipher: b"",
            peer_identity: b"",
            cause_detail: text,
            ..exchange()
        };
        let names = NameHistory::default();
        let line = Line::new(event, &names);
        let mut clock = Clock::default();
        let (mut json, mut text) = (Vec::new(), Vec::new());
        let style = LogStyle::all(style::LogFormat::Json);
        write_json(&line, &style, &mut clock, &mut json);
        write_text(&line, &style, &mut clock, &mut text);
        (json, text)
    }

    #[test]
    fn no_byte_of_a_peer_leaves_its_quotes() {
        for byte in 0..=u8::MAX {
            let (json, text) = with_hostile_text(&[b'a', byte, b'z']);
            for line in [&json, &text] {
                let (end, body) = line.split_last().unwrap();
                assert_eq!(*end, b'\n');
                assert!(body.iter().all(|byte| (0x20..0x7f).contains(byte)), "{byte:#x}");
            }
            let (plain_json, plain_text) = with_hostile_text(b"a-z");
            let quotes = |line: &[u8]| line.iter().filter(|byte| **byte == b'"').count();
            // In JSON a quote is escaped as \u0022, so the number of quotes must not change.
            assert_eq!(quotes(&json), quotes(&plain_json), "{byte:#x}");
            assert_eq!(quotes(&text), quotes(&plain_text), "{byte:#x}");
            let beginning = |line: &[u8]| {
                let text = String::from_utf8(line.to_vec()).unwrap();
                text.split(" request_bytes=").next().unwrap().split(' ').count()
            };
            assert_eq!(beginning(&text), beginning(&plain_text), "{byte:#x}");
        }
    }

    /// The bytes of a text in which those beyond UTF-8 are `\\xXX`.
    fn without_escapes(text: &str) -> Vec<u8> {
        let mut pieces = text.split("\\x");
        let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
        for piece in pieces {
            let (digits, rest) = piece.split_at(2);
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            bytes.extend_from_slice(rest.as_bytes());
        }
        bytes
    }

    #[test]
    fn every_byte_can_be_read_back_from_json() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let (json, _) = with_hostile_text(&all);
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let fields =
            ["client", "target", "host", "request_id", "endpoint", "user_agent", "cause_detail"];
        for field in fields {
            let text = json[field].as_str().unwrap();
            let bytes = without_escapes(text);
            assert!(all.starts_with(&bytes) && bytes.len() > 100, "{field}");
        }
    }

    #[test]
    fn fields_are_chosen_and_ordered_by_a_list() {
        use crate::LogField;
        use crate::captures;
        let mut kept = Vec::new();
        captures::begin(7, &mut |bytes| kept.extend_from_slice(bytes));
        for value in [Some(&b"https://a.example/"[..]), None, Some("ü".as_bytes())] {
            let length = kept.len();
            captures::push(value, length, &mut |bytes| kept.extend_from_slice(bytes));
        }
        let event = ExchangeFinished { captures: &kept, user_agent: b"curl", ..exchange() };
        let line = Line { event, listener: "l", route: "r", rule: "", cluster: "c" };
        let named = |name: &str| LogField::Named(name.into());
        let captured = |name: &str, place| LogField::Captured { name: name.into(), place };
        let fields = [
            captured("request_headers.x-none", 1),
            captured("response_headers.x-city", 2),
            named("status"),
            named("cluster"),
            named("no_such_field"),
        ];
        let written = |format, digest| {
            let style = LogStyle::all(format).with_captures(digest, Some(0)).with_fields(&fields);
            let (mut out, mut clock) = (Vec::new(), Clock::default());
            match format {
                style::LogFormat::Json => write_json(&line, &style, &mut clock, &mut out),
                style::LogFormat::Text => write_text(&line, &style, &mut clock, &mut out),
                style::LogFormat::Combined => write_combined(&line, &style, &mut clock, &mut out),
            }
            String::from_utf8(out).unwrap()
        };
        let status = line.event.status;
        let json = format!(
            "{{\"response_headers.x-city\":\"ü\",\"status\":{status},\"cluster\":\"c\"}}\n"
        );
        assert_eq!(written(style::LogFormat::Json, 7), json);
        let text = written(style::LogFormat::Text, 7);
        assert!(text.ends_with(" response_headers.x-city=\"ü\" cluster=\"c\"\n"), "{text}");
        let combined = written(style::LogFormat::Combined, 7);
        assert!(combined.ends_with(" \"https://a.example/\" \"curl\"\n"), "{combined}");
        // Values that were kept under other names, before a reload, are left out.
        assert!(!written(style::LogFormat::Json, 8).contains("x-city"));
        assert!(written(style::LogFormat::Combined, 8).ends_with(" \"-\" \"curl\"\n"));
    }

    #[test]
    fn json_has_the_declared_fields_in_their_order() {
        let mut event = exchange();
        event.cause = Some(crate::cause::Cause::NoRoute);
        event.cause_detail = b"why";
        event.is_reply = true;
        event.is_tunnel = true;
        event.grpc = Some(GrpcCall { status: Some(5), ..GrpcCall::default() });
        event.failed_attempts = b"127.0.0.1:1 connect_failed";
        event.stages = Stages {
            accept: 1,
            read_head: 1,
            route: 1,
            request_body: 1,
            retries: 1,
            pool_wait: 1,
            connect: 1,
            upstream_write: 1,
            first_byte: 1,
            response: 1,
            downstream_write: 1,
            total: 1,
        };
        let line = Line { event, listener: "l", route: "r", rule: "n", cluster: "c" };
        let mut json = Vec::new();
        let style = LogStyle::all(style::LogFormat::Json);
        write_json(&line, &style, &mut Clock::default(), &mut json);
        let json = String::from_utf8(json).unwrap();
        let places: Vec<_> = FIELDS.iter().map(|field| json.find(field.json_key)).collect();
        assert!(places.iter().all(Option::is_some), "{json}");
        assert!(places.is_sorted(), "{json}");
    }

    #[test]
    fn the_documented_bounds_are_those_of_the_record() {
        assert_eq!(TARGET_BYTES_MAX, 1024);
        assert!(REFERENCE_HEAD.contains("the target at 1,024 bytes"));
    }
}
