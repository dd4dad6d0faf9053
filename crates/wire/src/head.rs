//! The head of a message: what every codec turns bytes into and back.
//!
//! A head is one contiguous block, as it came from the wire, and a [`HeadIndex`] of spans into it.
//! Nothing is copied to decode it. What filters set goes to an arena in the index, and encoding
//! copies neighbouring unchanged fields as one run.
//!
//! The live fields of a head are those that go on: fields for the next hop only (`Connection` and
//! what it nominates, `Transfer-Encoding`, `Upgrade` and so on) were taken out when it was decoded,
//! their meaning is in getters such as [`Head::persistent`], and the encoder writes its own.

mod fields;
mod known;
pub mod lookalike;
mod method;
mod rpc;

use std::fmt;
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

pub use fields::HeadIndex;
pub(crate) use fields::{FieldEntry, Place, Span, Spelling};
pub use known::Known;
pub use method::{Method, Version};
pub use rpc::Rpc;
pub(crate) use rpc::RpcFacts;

use crate::host::{Authority, around_root_dot};
use crate::octets;

/// The head of a request.
pub type RequestHead<'b> = Head<'b, Request>;

/// The head of a response.
pub type ResponseHead<'b> = Head<'b, Response>;

/// The name of a request's target among fields.
const TARGET: &[u8] = b":path";

/// A decoded head: the block that it came in and the index over it.
///
/// `K` is [`Request`] or [`Response`].
pub struct Head<'b, K> {
    pub(crate) block: &'b [u8],
    pub(crate) index: &'b mut HeadIndex,
    kind: PhantomData<K>,
}

/// Marks the head of a request.
#[derive(Clone, Copy, Debug)]
pub struct Request;

/// Marks the head of a response.
#[derive(Clone, Copy, Debug)]
pub struct Response;

/// A head and its index, kept together or brought together again.
impl<'b, K> Head<'b, K> {
    /// The head that `index` describes, where `block` is what [`Head::block`] gave when it was
    /// decoded. Both may have been saved in between.
    pub fn resume(block: &'b [u8], index: &'b mut HeadIndex) -> Self {
        Self { block, index, kind: PhantomData }
    }

    /// The bytes that the index points into. They must be kept as long as the index.
    #[must_use]
    pub fn block(&self) -> &'b [u8] {
        self.block
    }

    /// The index, to be saved.
    #[must_use]
    pub fn index(&self) -> &HeadIndex {
        self.index
    }

    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        self.index.bytes(self.block, span)
    }
}

/// The live fields.
impl<K> Head<'_, K> {
    /// How many fields there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "the fields of a head, not a container")]
    pub fn len(&self) -> usize {
        self.index.fields.len()
    }

    /// Name and value of each field, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.index.fields.iter().map(|field| (self.bytes(field.name()), self.bytes(field.value())))
    }

    /// The value of the first field of this name. [`Known::Other`] finds nothing.
    #[must_use]
    pub fn field(&self, known: Known) -> Option<&[u8]> {
        self.fields_named(known).next()
    }

    /// The values of all fields of this name, in order.
    pub fn fields_named(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        let is_there = known != Known::Other && self.index.may_have(known);
        let fields: &[FieldEntry] = if is_there { &self.index.fields } else { &[] };
        fields
            .iter()
            .filter(move |field| field.known == known)
            .map(|field| self.bytes(field.value()))
    }

    /// The value of the first field of this name, in any case.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&[u8]> {
        self.find_all(name).next()
    }

    /// The values of all fields of this name, in any case and in order.
    pub fn find_all<'h>(&'h self, name: &[u8]) -> impl Iterator<Item = &'h [u8]> {
        let known = Known::from_name(name);
        self.index
            .fields
            .iter()
            .filter(move |field| self.index.is_named(self.block, field, known, name))
            .map(|field| self.bytes(field.value()))
    }

    /// Whether there is a field of this name, in any case.
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.find(name).is_some()
    }

    /// Names of the fields, and `:path`, that the sender marked as never indexed (RFC 7541, section
    /// 7.1.3). HTTP/1 has no such mark, so a caller that saves the head in that form saves these
    /// names too, for [`Head::set_never_indexed`].
    pub fn never_indexed(&self) -> impl Iterator<Item = &[u8]> {
        let target = self.index.request.is_target_secret.then_some(TARGET);
        let fields = self.index.fields.iter().filter(|field| field.spelling == Spelling::Secret);
        target.into_iter().chain(fields.map(|field| self.bytes(field.name())))
    }

    /// Keeps what has this name, in any case, out of compression tables.
    pub fn set_never_indexed(&mut self, name: &[u8]) {
        if name == TARGET {
            self.index.request.is_target_secret = true;
            return;
        }
        let known = Known::from_name(name);
        for place in 0..self.index.fields.len() {
            let is_meant = |field: &&FieldEntry| {
                field.spelling == Spelling::Canonical
                    && self.index.is_named(self.block, field, known, name)
            };
            if self.index.fields.get(place).filter(is_meant).is_some()
                && let Some(field) = self.index.fields.get_mut(place)
            {
                field.spelling = Spelling::Secret;
            }
        }
    }

    /// Makes `value` the only value of the fields named `name`, in the place of the first.
    ///
    /// Names and values are trusted to be a token and a field value. Fields that the encoder
    /// writes on its own account (those that [`Known::is_hop_by_hop`], and `Content-Length`) are
    /// left as they are: a filter cannot contradict the framing.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.index.set(self.block, Known::from_name(name), name, value);
    }

    /// [`Head::set`] by number; nothing happens for [`Known::Other`].
    pub fn set_known(&mut self, known: Known, value: &[u8]) {
        if known != Known::Other {
            self.index.set(self.block, known, known.name(), value);
        }
    }

    /// Adds a field behind all others, on the terms of [`Head::set`].
    ///
    /// Another `Host` cannot be added; use [`Head::set`].
    pub fn append(&mut self, name: &[u8], value: &[u8]) {
        self.index.append(Known::from_name(name), name, value);
    }

    /// [`Head::append`] by number; nothing happens for [`Known::Other`].
    pub fn append_known(&mut self, known: Known, value: &[u8]) {
        if known != Known::Other {
            self.index.append(known, known.name(), value);
        }
    }

    /// Removes all fields of this name, in any case, and says whether there were any.
    ///
    /// `Content-Length` stays, on the terms of [`Head::set`].
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.index.remove(self.block, Known::from_name(name), name)
    }

    /// [`Head::remove`] by number.
    pub fn remove_known(&mut self, known: Known) -> bool {
        known != Known::Other && self.index.remove(self.block, known, known.name())
    }

    /// Whether it has a name that is none of [`Known`] and may be read as another's or ask a proxy for something (see
    /// [`lookalike`]), so that [`Head::remove_others`] is worth its while.
    #[must_use]
    pub fn has_unusual_names(&self) -> bool {
        self.index.has_unusual_names
    }

    /// Removes fields whose names are none of [`Known`], and says how many.
    pub fn remove_others(&mut self, is_removed: impl FnMut(&[u8]) -> bool) -> usize {
        self.index.remove_others(self.block, is_removed)
    }

    /// No encoding of this head takes more bytes than this. Costs nothing to ask.
    #[must_use]
    pub fn encoded_len_max(&self) -> usize {
        // A field from the block is copied, or loses space that is not canonical; without a space
        // behind its colon, or with a bare LF behind it, it gains two octets. One from the arena gains a colon, a space and a line end, and the encoder's own fields
        // and the start line's are all in the constant.
        const OWN_BYTES_MAX: usize = 256;
        self.block.len() + self.index.added.len() + 4 * self.index.fields.len() + OWN_BYTES_MAX
    }
}

/// The request line, and what the fields say about the request as a whole.
impl RequestHead<'_> {
    /// The method; [`Method::Other`] if the proxy does not distinguish it.
    #[must_use]
    pub fn method(&self) -> Method {
        self.index.request.method
    }

    /// The method as it was received.
    #[must_use]
    pub fn method_bytes(&self) -> &[u8] {
        self.bytes(self.index.request.method_span)
    }

    /// The version that the request came in.
    #[must_use]
    pub fn version(&self) -> Version {
        self.index.request.version
    }

    /// The normal form of the path (see [`crate::path`]), without the query; `*` for the server as
    /// a whole, and nothing for `CONNECT` that is not extended.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.bytes(self.index.request.path)
    }

    /// The query: the part of the target behind the first `?`, as it was received.
    #[must_use]
    pub fn query(&self) -> Option<&[u8]> {
        self.index.request.query.map(|span| self.bytes(span))
    }

    /// The host, in lower case and without its port and the dot of the root; an IPv6 address has its brackets, and is
    /// written as RFC 5952 has it. Empty if the request names none.
    #[must_use]
    pub fn host(&self) -> &[u8] {
        self.bytes(self.index.host)
    }

    /// Host and port as they were received, from the target if it named them, else from `Host`; the
    /// dot of the root is left out.
    /// The same octets are the value of the live `Host` field.
    #[must_use]
    pub fn authority(&self) -> &[u8] {
        self.field(Known::Host).unwrap_or_default()
    }

    /// How the end of the body is found. Never [`Framing::UntilClose`].
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.index.request.framing
    }

    /// Whether the peer would send another request on this connection.
    #[must_use]
    pub fn persistent(&self) -> bool {
        self.index.request.persistent
    }

    /// The protocols that the peer offers to change to: `Upgrade`, if `Connection` nominates it
    /// and the version is HTTP/1.1, or the `:protocol` of an extended `CONNECT` in HTTP/2.
    #[must_use]
    pub fn upgrade(&self) -> Option<&[u8]> {
        self.index.upgrade.map(|span| self.bytes(span))
    }

    /// The settings of a client that asks for HTTP/2 (RFC 7540, section 3.2.1): the value of
    /// `HTTP2-Settings`, if there is exactly one and `Connection` names it, so that no hop
    /// forwarded it blindly. There are none in a head that was restored.
    #[must_use]
    pub fn http2_settings(&self) -> Option<&[u8]> {
        let is_connection = |field: &&FieldEntry| field.known == Known::Connection;
        let mut options = self.index.hop_by_hop.iter().filter(is_connection);
        let name = Known::Http2Settings.name();
        let is_name = |option: &[u8]| option.eq_ignore_ascii_case(name);
        if !options.any(|field| octets::list(field.value().of(self.block)).any(is_name)) {
            return None;
        }
        let is_settings = |field: &&FieldEntry| field.known == Known::Http2Settings;
        let mut found = self.index.hop_by_hop.iter().filter(is_settings);
        match (found.next(), found.next()) {
            (Some(field), None) => Some(field.value().of(self.block)),
            _ => None,
        }
    }

    /// Whether it is a `CONNECT` that names a protocol and a path (RFC 8441), which in HTTP/1.1
    /// is a `GET` with `Upgrade`.
    #[must_use]
    pub fn is_extended_connect(&self) -> bool {
        self.method() == Method::Connect && self.index.upgrade.is_some() && !self.path().is_empty()
    }

    /// Whether the peer waits for a `100 Continue` before it sends the body.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.index.request.expects_continue
    }

    /// Whether the peer takes a trailer section (`TE: trailers`).
    #[must_use]
    pub fn accepts_trailers(&self) -> bool {
        self.index.request.accepts_trailers
    }

    /// Sets that a trailer section is accepted (`TE: trailers`).
    pub fn set_accepts_trailers(&mut self) {
        self.index.request.accepts_trailers = true;
    }

    /// Replaces the path. It is trusted to be normal, and the query stays.
    pub fn set_path(&mut self, path: &[u8]) {
        debug_assert!(path == b"*" || path.first() == Some(&b'/'));
        self.index.request.path = self.index.add(path);
        self.index.request.line_end = None;
    }

    /// Replaces or removes the query. It is trusted to hold no space and no control.
    pub fn set_query(&mut self, query: Option<&[u8]>) {
        self.index.request.query = query.map(|query| self.index.add(query));
        self.index.request.line_end = None;
    }

    /// Replaces host and port: both the `Host` field and what [`RequestHead::host`] says. It is
    /// trusted to be an authority.
    pub fn set_authority(&mut self, authority: &[u8]) {
        self.set_known(Known::Host, authority);
    }

    /// Replaces the framing, for a body that is not sent on as it came.
    pub fn set_framing(&mut self, framing: Framing) {
        debug_assert_ne!(framing, Framing::UntilClose, "a request has an end");
        self.index.request.framing = framing;
    }
}

impl<'b> ResponseHead<'b> {
    /// A head without a block, of a response that the caller makes from parts. Among `fields`, those that
    /// the encoder writes itself ([`Head::set`]) have no place.
    #[must_use]
    pub fn of_parts(status: u16, fields: &[(&[u8], &[u8])], index: &'b mut HeadIndex) -> Self {
        index.clear();
        let mut head = Self::resume(&[], index);
        head.set_status(status);
        for (name, value) in fields {
            head.append(name, value);
        }
        head
    }
}

/// The status line, and what the fields say about the response as a whole.
impl ResponseHead<'_> {
    /// The status code, from 100 to 999.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.index.response.status
    }

    /// The reason phrase, which means nothing and may be empty.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        self.bytes(self.index.response.reason)
    }

    /// The version that the response came in.
    #[must_use]
    pub fn version(&self) -> Version {
        self.index.response.version
    }

    /// How the end of the body is found.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.index.response.framing
    }

    /// Whether the peer would take another request on this connection after the response.
    #[must_use]
    pub fn persistent(&self) -> bool {
        self.index.response.persistent
    }

    /// The protocol changed to, or offered: `Upgrade`, if `Connection` nominates it and the
    /// version is HTTP/1.1.
    #[must_use]
    pub fn upgrade(&self) -> Option<&[u8]> {
        self.index.upgrade.map(|span| self.bytes(span))
    }

    /// Names the protocol that the connection changes to.
    pub fn set_upgrade(&mut self, protocol: &[u8]) {
        self.index.upgrade = Some(self.index.add(protocol));
    }

    /// Replaces the status; its reason becomes the standard one.
    pub fn set_status(&mut self, status: u16) {
        debug_assert!((100..=999).contains(&status));
        self.index.response.status = status;
        self.index.response.reason = self.index.add(crate::h1::reason_phrase(status));
        self.index.response.line_end = None;
    }
}

impl<K> fmt::Debug for Head<'_, K> {
    /// Lengths only: what is inside belongs to a peer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("bytes", &self.block.len())
            .field("fields", &self.len())
            .finish_non_exhaustive()
    }
}

/// How the end of a body is found (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// This many bytes follow.
    Length(u64),
    /// The chunked coding says.
    Chunked,
    /// The peer closes the connection. Only a response may end so.
    UntilClose,
}

/// Properties of a request, from its request line and fields.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RequestFacts {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) framing: Framing,
    /// The framing that the fields declared; `framing` may have been replaced.
    pub(crate) declared: Framing,
    pub(crate) persistent: bool,
    pub(crate) expects_continue: bool,
    pub(crate) accepts_trailers: bool,
    pub(crate) method_span: Span,
    pub(crate) path: Span,
    pub(crate) query: Option<Span>,
    /// The sender does not want the target to be in any compression table.
    pub(crate) is_target_secret: bool,
    /// Where the request line ends in the block, if it can be forwarded as it is.
    pub(crate) line_end: Option<u32>,
}

/// Properties of a response, from its status line and fields.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ResponseFacts {
    pub(crate) status: u16,
    pub(crate) version: Version,
    pub(crate) framing: Framing,
    pub(crate) persistent: bool,
    pub(crate) reason: Span,
    /// Where the status line ends in the block, if it can be forwarded as it is.
    pub(crate) line_end: Option<u32>,
}

impl HeadIndex {
    /// Sets the host from `value`, which lies at `span`, and returns whether it is an authority.
    pub(crate) fn on_host_set(&mut self, value: &[u8], span: Span) -> bool {
        let authority = Authority::parse(value);
        self.host = match authority {
            None => Span::default(),
            Some(Authority { host, is_normal: true, .. }) => {
                Span { len: octets::narrow(host.len()), ..span }
            }
            Some(authority @ Authority { host: [b'[', ..], .. }) => {
                self.add(&authority.normal_host())
            }
            Some(Authority { host, .. }) => self.add_lower_case(host),
        };
        authority.is_some()
    }

    /// Replaces the `Host` field by this authority without the dot of the root.
    #[cold]
    pub(crate) fn set_host_without_root_dot(&mut self, authority: &[u8]) {
        let (host, port) = around_root_dot(authority);
        let name = self.add(Known::Host.name());
        let start = self.added.len();
        self.added.extend_from_slice(host);
        self.added.extend_from_slice(port);
        let value = self.added_from(start);
        let entry = FieldEntry {
            name_start: name.start,
            value_start: value.start,
            value_len: value.len,
            name_len: u16::try_from(name.len).unwrap_or(u16::MAX),
            known: Known::Host,
            spelling: Spelling::Added,
        };
        if let Some(slot) = self.fields.iter_mut().find(|field| field.known == Known::Host) {
            *slot = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::{HeadLimits, Scan, decode_request, decode_response};
    use crate::path::Slashes;

    const LIMITS: HeadLimits = HeadLimits {
        request_line_bytes_max: 100,
        head_bytes_max: 1000,
        fields_max: 50,
        slashes: Slashes::Keep,
    };

    const REQUEST: &[u8] = b"PUT /a?b HTTP/1.1\r\nHost: A:1\r\nX-One: 1\r\nVia: v\r\nx-two: 2\r\n\
        X-ONE: 3\r\nContent-Length: 4\r\nCookie: c\r\ncookie: d\r\n\r\n";

    fn decoded(index: &mut HeadIndex) -> RequestHead<'_> {
        decode_request(REQUEST, &mut Scan::default(), &LIMITS, index).unwrap().unwrap().0
    }

    fn values(head: &RequestHead<'_>, name: &str) -> Vec<String> {
        head.find_all(name.as_bytes())
            .map(|value| String::from_utf8(value.to_vec()).unwrap())
            .collect()
    }

    fn names(head: &RequestHead<'_>) -> String {
        let names: Vec<_> =
            head.iter().map(|(name, _)| String::from_utf8(name.to_vec()).unwrap()).collect();
        names.join(" ")
    }

    #[test]
    fn fields_are_found_by_number_and_by_name_in_any_case() {
        let mut index = HeadIndex::default();
        let head = decoded(&mut index);
        assert_eq!(head.len(), 8);
        assert_eq!(head.field(Known::Cookie), Some(&b"c"[..]));
        assert_eq!(head.fields_named(Known::Cookie).collect::<Vec<_>>(), [b"c", b"d"]);
        assert_eq!(head.find(b"COOKIE"), Some(&b"c"[..]));
        assert_eq!(values(&head, "x-one"), ["1", "3"]);
        assert_eq!(head.find(b"X-Two"), Some(&b"2"[..]));
        assert!(head.contains(b"via") && !head.contains(b"vi") && !head.contains(b""));
        assert_eq!(head.field(Known::Server), None);
        assert_eq!(head.field(Known::Other), None, "not the first of all others");
    }

    #[test]
    fn setting_replaces_all_of_a_name_in_the_place_of_the_first() {
        let mut index = HeadIndex::default();
        let mut head = decoded(&mut index);
        head.set(b"x-one", b"new");
        head.set_known(Known::Cookie, b"e");
        head.set(b"X-Three", b"");
        assert_eq!(names(&head), "Host x-one Via x-two Content-Length cookie X-Three");
        assert_eq!(values(&head, "X-One"), ["new"]);
        assert_eq!(values(&head, "cookie"), ["e"]);
        assert_eq!(values(&head, "x-three"), [""]);
        head.set(b"x-one", b"newer");
        assert_eq!(values(&head, "x-one"), ["newer"]);
    }

    #[test]
    fn appending_keeps_what_is_there() {
        let mut index = HeadIndex::default();
        let mut head = decoded(&mut index);
        head.append_known(Known::Via, b"w");
        head.append(b"x-two", b"4");
        head.append_known(Known::Other, b"nothing");
        assert_eq!(values(&head, "via"), ["v", "w"]);
        assert_eq!(values(&head, "X-TWO"), ["2", "4"]);
        assert_eq!(head.len(), 10);
    }

    #[test]
    fn removing_takes_all_of_a_name() {
        let mut index = HeadIndex::default();
        let mut head = decoded(&mut index);
        assert!(head.remove(b"x-ONE"));
        assert!(!head.remove(b"x-one"));
        assert!(head.remove_known(Known::Cookie));
        assert!(!head.remove_known(Known::Cookie));
        assert!(!head.remove_known(Known::Other), "not all others");
        assert_eq!(names(&head), "Host Via x-two Content-Length");
        head.append(b"x-one", b"9");
        assert!(head.remove(b"X-One"));
        assert_eq!(head.len(), 4);
    }

    #[test]
    fn what_the_encoder_writes_cannot_be_set() {
        let mut index = HeadIndex::default();
        let mut head = decoded(&mut index);
        for name in ["Content-Length", "transfer-encoding", "CONNECTION", "upgrade", "te"] {
            head.set(name.as_bytes(), b"9");
            head.append(name.as_bytes(), b"9");
        }
        head.set_known(Known::KeepAlive, b"9");
        assert!(!head.remove(b"content-length"));
        assert_eq!(values(&head, "content-length"), ["4"]);
        assert_eq!(head.len(), 8);
    }

    #[test]
    fn the_host_follows_its_field() {
        let mut index = HeadIndex::default();
        let mut head = decoded(&mut index);
        assert_eq!((head.host(), head.authority()), (&b"a"[..], &b"A:1"[..]));
        head.set_authority(b"New.Example:2");
        assert_eq!((head.host(), head.authority()), (&b"new.example"[..], &b"New.Example:2"[..]));
        head.set(b"hOST", b"other:3");
        assert_eq!((head.host(), head.authority()), (&b"other"[..], &b"other:3"[..]));
        assert_eq!(values(&head, "host"), ["other:3"]);
        head.set_authority(b"[0:0::0001]:4");
        assert_eq!((head.host(), head.authority()), (&b"[::1]"[..], &b"[0:0::0001]:4"[..]));
        assert!(head.remove(b"host"));
        assert_eq!((head.host(), head.authority()), (&b""[..], &b""[..]));
    }

    #[test]
    fn path_query_and_framing_can_be_replaced() {
        let mut index = HeadIndex::default();
        let mut head = decoded(&mut index);
        head.set_path(b"/c/d");
        assert_eq!((head.path(), head.query()), (&b"/c/d"[..], Some(&b"b"[..])));
        head.set_query(None);
        assert_eq!(head.query(), None);
        head.set_query(Some(b""));
        assert_eq!(head.query(), Some(&b""[..]));
        head.set_framing(Framing::Chunked);
        assert_eq!(head.framing(), Framing::Chunked);
    }

    #[test]
    fn a_new_status_brings_its_reason() {
        let mut index = HeadIndex::default();
        let input = b"HTTP/1.1 200 Fine\r\nContent-Length: 0\r\n\r\n";
        let head = decode_response(input, &mut Scan::default(), &LIMITS, &mut index, Method::Get);
        let (mut head, _) = head.unwrap().unwrap();
        assert_eq!((head.status(), head.reason()), (200, &b"Fine"[..]));
        head.set_status(404);
        assert_eq!((head.status(), head.reason()), (404, &b"Not Found"[..]));
    }

    #[test]
    fn methods_are_compared_with_their_case() {
        for (name, method, is_safe, is_idempotent) in [
            ("GET", Method::Get, true, true),
            ("HEAD", Method::Head, true, true),
            ("POST", Method::Post, false, false),
            ("PUT", Method::Put, false, true),
            ("DELETE", Method::Delete, false, true),
            ("CONNECT", Method::Connect, false, false),
            ("OPTIONS", Method::Options, true, true),
            ("TRACE", Method::Trace, true, true),
            ("PATCH", Method::Patch, false, false),
            ("get", Method::Other, false, false),
            ("GETS", Method::Other, false, false),
        ] {
            assert_eq!(Method::from_bytes(name.as_bytes()), method);
            assert_eq!((method.is_safe(), method.is_idempotent()), (is_safe, is_idempotent));
        }
    }

    #[test]
    fn a_head_shows_no_contents() {
        let mut index = HeadIndex::default();
        let shown = format!("{:?}", decoded(&mut index));
        assert_eq!(shown, format!("Head {{ bytes: {}, fields: 8, .. }}", REQUEST.len()));
    }
}
