//! Frames of the RPC protocol that some clients and services speak.

use crate::pico::FIXED_BYTES;

/// A whole frame.
///
/// # Panics
///
/// If a field or the body is too long for the protocol.
pub(crate) fn frame(
    kind: u8,
    status: u8,
    number: u32,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Vec<u8> {
    let mut section = Vec::new();
    for (name, value) in fields {
        section.push(u8::try_from(name.len()).expect("a short name"));
        section.extend(u16::try_from(value.len()).expect("a short value").to_be_bytes());
        section.extend(name.bytes().chain(value.bytes()));
    }
    let mut frame = vec![kind, status];
    frame.extend(u16::try_from(section.len()).expect("few fields").to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.extend(u32::try_from(body.len()).expect("a small body").to_be_bytes());
    frame.extend(section);
    frame.extend(body);
    frame
}

/// The head of a call with this id, in front of a body.
pub(crate) fn call(is_one_way: bool, number: u32, id: u64, body: &[u8]) -> Vec<u8> {
    let id = format!("{id:016x}");
    let fields = [("service", "calls"), ("method", "go"), ("id", &id[..])];
    frame(if is_one_way { 2 } else { 1 }, 0, number, &fields, body)
}

/// The id of a call, by its head.
pub(crate) fn id_of(head: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\x02\x00\x10id";
    let fields = head.get(FIXED_BYTES..)?;
    let place = fields.windows(NAME.len()).position(|window| window == NAME)?;
    let value = fields.get(place + NAME.len()..)?.get(..16)?;
    u64::from_str_radix(str::from_utf8(value).ok()?, 16).ok()
}
