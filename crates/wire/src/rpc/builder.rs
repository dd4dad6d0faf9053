//! The head of a call, as a protocol finds it in a frame.

use std::ops::Range;

use super::{Asked, Frame, FrameKind};
use crate::head::{
    FieldEntry, Framing, HeadIndex, Known, Method, RequestHead, ResponseHead, RpcFacts, Span,
    Spelling,
};
use crate::octets;

/// Puts a head together from places in the bytes of a frame.
#[derive(Debug)]
pub struct HeadBuilder<'b> {
    block: &'b [u8],
    index: &'b mut HeadIndex,
}

/// Where a request says what is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The name of the service.
    pub service: Range<usize>,
    /// The method of it.
    pub method: Range<usize>,
    /// The version of the service, or nothing.
    pub version: Range<usize>,
    /// The group of the service, or nothing.
    pub group: Range<usize>,
    /// How long its client waits, in ms, or 0.
    pub timeout_millis: u32,
}

impl<'b> HeadBuilder<'b> {
    /// Of a frame whose head is `block`; what `index` held is forgotten.
    pub fn new(block: &'b [u8], index: &'b mut HeadIndex) -> Self {
        index.clear();
        Self { block, index }
    }

    /// The bytes of the head.
    #[must_use]
    pub const fn bytes(&self) -> &'b [u8] {
        self.block
    }

    /// Adds a field, by the places of its name and value. A place that is not in the head is empty.
    pub fn push_field(&mut self, name: Range<usize>, value: Range<usize>) {
        let (name, value) = (self.span(name), self.span(value));
        self.index.push(FieldEntry {
            name_start: name.start,
            value_start: value.start,
            value_len: value.len,
            name_len: u16::try_from(name.len).unwrap_or(u16::MAX),
            known: Known::from_name(name.of(self.block)),
            spelling: Spelling::Spaced,
        });
    }

    /// Adds a field with a name that is not among the bytes of the head.
    pub fn push_own_field(&mut self, name: &[u8], value: Range<usize>) {
        let value = self.span(value);
        let name = self.index.add(name);
        let value = self.index.add(value.of(self.block));
        self.index.push(FieldEntry {
            name_start: name.start,
            value_start: value.start,
            value_len: value.len,
            name_len: u16::try_from(name.len).unwrap_or(u16::MAX),
            known: Known::Other,
            spelling: Spelling::Added,
        });
    }

    /// The head of a request. Its path is `/service/method`, as that of gRPC is.
    #[must_use]
    pub fn request(self, frame: &Frame, call: Call) -> RequestHead<'b> {
        let Call { service, method, version, group, timeout_millis } = call;
        let spans = [service, method, version, group].map(|place| self.span(place));
        let Self { block, index } = self;
        index.begin_rpc(block, frame, spans, timeout_millis);
        RequestHead::resume(block, index)
    }

    /// The head of a response. `status` is what it is as a status of HTTP, and `code` the protocol's own.
    #[must_use]
    pub fn response(self, frame: &Frame, status: u16, code: u16) -> ResponseHead<'b> {
        let Self { block, index } = self;
        index.rpc = RpcFacts { is_rpc: true, asked: frame.asked, code, ..RpcFacts::default() };
        index.response.status = status;
        index.response.framing = framing(frame.body_len);
        index.response.persistent = true;
        ResponseHead::resume(block, index)
    }

    fn span(&self, place: Range<usize>) -> Span {
        let is_inside = place.start <= place.end && place.end <= self.block.len();
        if is_inside { Span::block(place.start, place.end) } else { Span::default() }
    }
}

impl HeadIndex {
    /// Fills in the facts of a request for what these spans name: service, method, version and group.
    pub(super) fn begin_rpc(
        &mut self,
        block: &[u8],
        frame: &Frame,
        [service, method, version, group]: [Span; 4],
        timeout_millis: u32,
    ) {
        let is_one_way = frame.kind == FrameKind::OneWay;
        let asked: Asked = frame.asked;
        self.rpc = RpcFacts {
            is_rpc: true,
            asked,
            service,
            method,
            version,
            group,
            timeout_millis,
            is_one_way,
            code: 0,
        };
        let start = self.added.len();
        self.added.push(b'/');
        self.added.extend_from_slice(service.of(block));
        self.added.push(b'/');
        self.added.extend_from_slice(method.of(block));
        self.request.path = self.added_from(start);
        self.request.method = Method::Other;
        self.request.framing = framing(frame.body_len);
        self.request.persistent = true;
        debug_assert!(octets::narrow(self.added.len()) < u32::MAX);
    }
}

/// How the end of a body of so many bytes is found.
const fn framing(body_len: u64) -> Framing {
    match body_len {
        0 => Framing::None,
        n => Framing::Length(n),
    }
}
