//! The head of a call while it waits: for the answer to a filter's question, or during a move.
//!
//! Any bytes may stand in a name or a value, so that no octet can mark an end: lengths stand in front,
//! 4 bytes each, in network order. The first octet is 0, with which no head of HTTP begins.

use super::builder::HeadBuilder;
use super::{Asked, Frame, FrameKind};
use crate::buffer::Buffer;
use crate::head::{Framing, Head, HeadIndex, RequestHead, ResponseHead};

/// The first octet of a parked head.
const MARK: u8 = 0;

/// Bytes in front of what is called and of the fields.
const FIXED_BYTES: usize = 1 + 8 + 8 + 8 + 4 + 2 + 2 + 1;

/// Whether [`park`] wrote these bytes, and no head of HTTP is what they are.
#[must_use]
pub fn is_parked(bytes: &[u8]) -> bool {
    bytes.first() == Some(&MARK)
}

/// Bytes that [`park`] writes.
#[must_use]
pub fn parked_len<K>(head: &Head<'_, K>) -> usize {
    let facts = facts(head).map(<[u8]>::len).iter().sum::<usize>() + 5 * 4;
    let fields = head.iter().map(|(name, value)| name.len() + value.len() + 8);
    FIXED_BYTES + facts + 4 + fields.sum::<usize>()
}

/// Writes a head down. Its body is `framing`, and `status` is that of a response.
pub fn park<K>(head: &Head<'_, K>, framing: Framing, status: u16, out: &mut Buffer) {
    let rpc = &head.index().rpc;
    let body_len = match framing {
        Framing::Length(n) => n,
        Framing::None | Framing::Chunked | Framing::UntilClose => 0,
    };
    out.push(&[MARK]);
    out.push(&rpc.asked.id.to_be_bytes());
    out.push(&rpc.asked.form.to_be_bytes());
    out.push(&body_len.to_be_bytes());
    out.push(&rpc.timeout_millis.to_be_bytes());
    out.push(&status.to_be_bytes());
    out.push(&rpc.code.to_be_bytes());
    out.push(&[u8::from(rpc.is_one_way)]);
    for fact in facts(head) {
        push_text(fact, out);
    }
    out.push(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_be_bytes());
    for (name, value) in head.iter() {
        push_text(name, out);
        push_text(value, out);
    }
}

/// Reads a request that [`park`] wrote; none if it is damaged.
#[must_use]
pub fn unpark_request<'b>(bytes: &'b [u8], index: &'b mut HeadIndex) -> Option<RequestHead<'b>> {
    let (frame, _, _, timeout_millis, mut reader) = fixed(bytes)?;
    let facts = [(); 4].map(|()| reader.text());
    let [Some(service), Some(method), Some(version), Some(group)] = facts else { return None };
    let path = reader.text()?;
    let path = bytes.get(path).filter(|path| path.first() == Some(&b'/'))?;
    let mut head = HeadBuilder::new(bytes, index);
    reader.fields(&mut head)?;
    let call = super::Call { service, method, version, group, timeout_millis };
    let mut head = head.request(&frame, call);
    head.set_path(path);
    Some(head)
}

/// Reads a response that [`park`] wrote; none if it is damaged.
#[must_use]
pub fn unpark_response<'b>(bytes: &'b [u8], index: &'b mut HeadIndex) -> Option<ResponseHead<'b>> {
    let (frame, status, code, _, mut reader) = fixed(bytes)?;
    for _ in 0..5 {
        reader.text()?;
    }
    let mut head = HeadBuilder::new(bytes, index);
    reader.fields(&mut head)?;
    (100..=999).contains(&status).then(|| head.response(&frame, status, code))
}

/// What stands in front.
fn fixed(bytes: &[u8]) -> Option<(Frame, u16, u16, u32, Reader<'_>)> {
    let mut reader = Reader { bytes, at: 0 };
    let [mark] = reader.take::<1>()?;
    let id = u64::from_be_bytes(reader.take()?);
    let form = u64::from_be_bytes(reader.take()?);
    let body_len = u64::from_be_bytes(reader.take()?);
    let timeout_millis = u32::from_be_bytes(reader.take()?);
    let status = u16::from_be_bytes(reader.take()?);
    let code = u16::from_be_bytes(reader.take()?);
    let kind = match reader.take::<1>()? {
        [0] => FrameKind::Request,
        [1] => FrameKind::OneWay,
        _ => return None,
    };
    let frame = Frame { kind, asked: Asked { id, form }, head_len: bytes.len(), body_len };
    (mark == MARK).then_some((frame, status, code, timeout_millis, reader))
}

/// What is called, and the path that may have been rewritten.
fn facts<'h, K>(head: &'h Head<'_, K>) -> [&'h [u8]; 5] {
    let rpc = &head.index().rpc;
    [rpc.service, rpc.method, rpc.version, rpc.group, head.index().request.path]
        .map(|span| head.bytes(span))
}

fn push_text(text: &[u8], out: &mut Buffer) {
    out.push(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.push(text);
}

/// Reads lengths and what they are of.
struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = *self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(taken)
    }

    /// The place of a text.
    fn text(&mut self) -> Option<std::ops::Range<usize>> {
        let len = u32::from_be_bytes(self.take()?) as usize;
        let place = self.at..self.at.checked_add(len).filter(|end| *end <= self.bytes.len())?;
        self.at = place.end;
        Some(place)
    }

    fn fields(&mut self, head: &mut HeadBuilder<'_>) -> Option<()> {
        for _ in 0..u32::from_be_bytes(self.take()?) {
            let (name, value) = (self.text()?, self.text()?);
            head.push_field(name, value);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Call;

    const BLOCK: &[u8] = b"orders.pay.1.gkeyvalue\r\n\0";

    fn head(index: &mut HeadIndex) -> RequestHead<'_> {
        let mut builder = HeadBuilder::new(BLOCK, index);
        builder.push_field(14..17, 17..25);
        let asked = Asked { id: 7, form: 9 };
        let frame = Frame { kind: FrameKind::OneWay, asked, head_len: 25, body_len: 5 };
        let call = Call {
            service: 0..6,
            method: 7..10,
            version: 11..12,
            group: 13..14,
            timeout_millis: 300,
        };
        builder.request(&frame, call)
    }

    fn parked() -> Vec<u8> {
        let mut index = HeadIndex::default();
        let mut head = head(&mut index);
        head.append(b"added", b"a b");
        let mut out = Buffer::new(parked_len(&head));
        park(&head, head.framing(), 200, &mut out);
        assert_eq!(out.spare_len(), 0, "parked_len is exact");
        out.filled().to_vec()
    }

    #[test]
    fn a_call_is_named_as_one_of_grpc_is() {
        let mut index = HeadIndex::default();
        let head = head(&mut index);
        assert_eq!(head.path(), b"/orders/pay");
        let rpc = head.rpc().unwrap();
        assert_eq!((rpc.service(), rpc.method()), (&b"orders"[..], &b"pay"[..]));
        assert_eq!((rpc.version(), rpc.group()), (&b"1"[..], &b"g"[..]));
        assert_eq!((rpc.timeout_millis(), rpc.is_one_way()), (300, true));
        assert_eq!(head.find(b"KEY"), Some(&b"value\r\n\0"[..]), "any bytes may stand in a value");
    }

    #[test]
    fn a_head_that_was_parked_is_what_it_was() {
        let bytes = parked();
        let mut index = HeadIndex::default();
        let head = unpark_request(&bytes, &mut index).unwrap();
        assert_eq!(head.path(), b"/orders/pay");
        assert_eq!(head.framing(), Framing::Length(5));
        let rpc = head.rpc().unwrap();
        assert_eq!(rpc.asked(), Asked { id: 7, form: 9 });
        assert_eq!((rpc.service(), rpc.group()), (&b"orders"[..], &b"g"[..]));
        assert_eq!((rpc.timeout_millis(), rpc.is_one_way()), (300, true));
        let fields: Vec<_> = head.iter().collect();
        assert_eq!(fields, [(&b"key"[..], &b"value\r\n\0"[..]), (b"added", b"a b")]);
        let mut again = Buffer::new(parked_len(&head));
        park(&head, head.framing(), 200, &mut again);
        assert_eq!(again.filled(), bytes);
        let mut index = HeadIndex::default();
        assert_eq!(unpark_response(&bytes, &mut index).unwrap().status(), 200);
    }

    #[test]
    fn a_parked_head_that_is_cut_off_or_changed_is_none_or_another_and_never_a_panic() {
        let bytes = parked();
        for n in 0..bytes.len() {
            let mut index = HeadIndex::default();
            assert!(unpark_request(&bytes[..n], &mut index).is_none(), "{n} bytes");
            for octet in [0, 1, 0x7f, 0xff] {
                let mut damaged = bytes.clone();
                damaged[n] = octet;
                if let Some(head) = unpark_request(&damaged, &mut index) {
                    head.iter().count();
                }
            }
        }
    }
}
