//! Pico: a protocol of the tests, with lengths in front and numbers for requests. All numbers are big-endian.
//!
//! ```text
//!  0      1        2             4        8          12
//!  │ kind │ status │ field bytes │ number │ body len │ fields │ body
//!                                                    │ name len (1) │ value len (2) │ name │ value │ …
//! ```
//!
//! The fields of a request begin with `service` and `method`.

use std::ops::Range;

use wire::buffer::Buffer;
use wire::head::{Head, RequestHead, ResponseHead};
use wire::rpc::{Asked, Call, Frame, FrameKind, HeadBuilder, Reply, RpcError, RpcProtocol};

/// The protocol: a value for the table.
#[derive(Debug)]
pub struct Pico;

/// Bytes in front of the fields.
pub const FIXED_BYTES: usize = 12;

/// Status of a response, and what it is as a status of HTTP.
const STATUSES: [(u8, u16); 4] = [(0, 200), (1, 500), (2, 503), (3, 404)];

impl RpcProtocol for Pico {
    fn name(&self) -> &'static str {
        "pico"
    }

    fn frame(&self, input: &[u8]) -> Result<Option<Frame>, RpcError> {
        // The first octet decides whether a frame begins, before the rest is there.
        let kind = match input.first() {
            None => return Ok(None),
            Some(1) => FrameKind::Request,
            Some(2) => FrameKind::OneWay,
            Some(3) => FrameKind::Response,
            Some(4) => FrameKind::Heartbeat,
            Some(5) => FrameKind::HeartbeatAnswer,
            Some(6) => FrameKind::GoAway,
            Some(_) => return Err(RpcError::Malformed("the first octet is no kind of frame")),
        };
        let Some(&[_, _, f0, f1, n0, n1, n2, n3, b0, b1, b2, b3]) = input.first_chunk() else {
            return Ok(None);
        };
        Ok(Some(Frame {
            kind,
            asked: Asked { id: u32::from_be_bytes([n0, n1, n2, n3]).into(), form: 0 },
            head_len: FIXED_BYTES + usize::from(u16::from_be_bytes([f0, f1])),
            body_len: u32::from_be_bytes([b0, b1, b2, b3]).into(),
        }))
    }

    fn decode_request<'b>(
        &self,
        frame: &Frame,
        mut head: HeadBuilder<'b>,
    ) -> Result<RequestHead<'b>, RpcError> {
        let mut call = Call::default();
        for (place, (name, value)) in read_fields(head.bytes())?.into_iter().enumerate() {
            match (place, head.bytes().get(name.clone())) {
                (0, Some(b"service")) => call.service = value.clone(),
                (1, Some(b"method")) => call.method = value.clone(),
                (0 | 1, _) => return Err(RpcError::Malformed("no service or method is named")),
                _ => {}
            }
            head.push_field(name, value);
        }
        if call.method.is_empty() {
            return Err(RpcError::Malformed("no service or method is named"));
        }
        Ok(head.request(frame, call))
    }

    fn decode_response<'b>(
        &self,
        frame: &Frame,
        mut head: HeadBuilder<'b>,
    ) -> Result<ResponseHead<'b>, RpcError> {
        let code = head.bytes().get(1).copied().unwrap_or_default();
        let known = STATUSES.into_iter().find(|(own, _)| *own == code);
        let (_, status) = known.ok_or(RpcError::Malformed("the status is unknown"))?;
        for (name, value) in read_fields(head.bytes())? {
            head.push_field(name, value);
        }
        Ok(head.response(frame, status, code.into()))
    }

    fn encode_request(
        &self,
        head: &RequestHead<'_>,
        body_len: u64,
        out: &mut Buffer,
    ) -> Result<(), RpcError> {
        let is_one_way = head.rpc().is_some_and(|rpc| rpc.is_one_way());
        encode(if is_one_way { 2 } else { 1 }, 0, 0, head, body_len, out)
    }

    fn set_id(&self, head: &mut [u8], id: u64) {
        let id = u32::try_from(id).unwrap_or(u32::MAX);
        if let Some(place) = head.get_mut(4..8) {
            place.copy_from_slice(&id.to_be_bytes());
        }
    }

    fn encode_response(
        &self,
        asked: Asked,
        head: &ResponseHead<'_>,
        body_len: u64,
        out: &mut Buffer,
    ) -> Result<(), RpcError> {
        let code = u8::try_from(head.rpc_code().unwrap_or_default()).unwrap_or(u8::MAX);
        encode(3, code, asked.id, head, body_len, out)
    }

    fn encode_reply(&self, asked: Asked, reply: &Reply<'_>, out: &mut Buffer) {
        let known = STATUSES.into_iter().find(|(_, status)| *status == reply.status);
        let code = known.map_or(1, |(code, _)| code);
        let body_len = u32::try_from(reply.reason.len()).unwrap_or(u32::MAX);
        fixed(3, code, 0, asked.id, body_len, out);
        out.push(reply.reason.as_bytes());
    }

    fn encode_heartbeat_answer(&self, asked: Asked, out: &mut Buffer) {
        fixed(5, 0, 0, asked.id, 0, out);
    }
}

/// The places of a name and of its value.
type Field = (Range<usize>, Range<usize>);

/// The places of names and values behind the fixed bytes.
fn read_fields(head: &[u8]) -> Result<Vec<Field>, RpcError> {
    let mut fields = Vec::new();
    let mut at = FIXED_BYTES;
    while at < head.len() {
        let lens = head.get(at..).and_then(|rest| rest.first_chunk());
        let &[name_len, v0, v1] = lens.ok_or(RpcError::Malformed("a field is cut off"))?;
        let name = at + 3..at + 3 + usize::from(name_len);
        let value = name.end..name.end + usize::from(u16::from_be_bytes([v0, v1]));
        at = value.end;
        if at > head.len() {
            return Err(RpcError::Malformed("a field is cut off"));
        }
        fields.push((name, value));
    }
    Ok(fields)
}

fn encode<K>(
    kind: u8,
    status: u8,
    id: u64,
    head: &Head<'_, K>,
    body_len: u64,
    out: &mut Buffer,
) -> Result<(), RpcError> {
    let bytes: usize = head.iter().map(|(name, value)| 3 + name.len() + value.len()).sum();
    let field_bytes = u16::try_from(bytes).map_err(|_| RpcError::HeadTooLarge)?;
    let body_len = u32::try_from(body_len).map_err(|_| RpcError::BodyTooLarge)?;
    fixed(kind, status, field_bytes, id, body_len, out);
    for (name, value) in head.iter() {
        let name_len = u8::try_from(name.len()).map_err(|_| RpcError::HeadTooLarge)?;
        let value_len = u16::try_from(value.len()).map_err(|_| RpcError::HeadTooLarge)?;
        out.push(&[name_len]);
        out.push(&value_len.to_be_bytes());
        out.push(name);
        out.push(value);
    }
    Ok(())
}

fn fixed(kind: u8, status: u8, field_bytes: u16, id: u64, body_len: u32, out: &mut Buffer) {
    out.push(&[kind, status]);
    out.push(&field_bytes.to_be_bytes());
    out.push(&u32::try_from(id).unwrap_or(u32::MAX).to_be_bytes());
    out.push(&body_len.to_be_bytes());
}
