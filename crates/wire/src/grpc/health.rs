//! The health service of gRPC: `grpc.health.v1.Health/Check` (`grpc/grpc`, doc/health-checking.md).
//!
//! Its two messages have one field each, so that they are written and read here rather than by a library for Protocol
//! Buffers (encoding: protobuf.dev, "Encoding").

use super::messages::MESSAGE_PREFIX_LEN;

/// The path of the call.
pub const PATH: &str = "/grpc.health.v1.Health/Check";

/// What a service says of itself (`HealthCheckResponse.ServingStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServingStatus {
    /// 0.
    Unknown,
    /// It is healthy.
    Serving,
    /// It is not.
    NotServing,
    /// The server has no such service; only `Watch` says so.
    ServiceUnknown,
    /// A value that this version does not know.
    Other(u64),
}

impl ServingStatus {
    /// The word of the specification.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Serving => "SERVING",
            Self::NotServing => "NOT_SERVING",
            Self::ServiceUnknown => "SERVICE_UNKNOWN",
            Self::Other(_) => "a status that is not defined",
        }
    }
}

/// Why the body of an answer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HealthError {
    /// It is shorter than its message says.
    #[error("the answer has no whole message")]
    Cut,
    /// Compressed, although no compression was offered.
    #[error("the answer is compressed, which was not asked for")]
    Compressed,
    /// Not the encoding of Protocol Buffers.
    #[error("the answer is no message of Protocol Buffers")]
    Malformed,
}

/// Bytes of the longest name of a service in [`encode_request`].
pub const SERVICE_BYTES_MAX: usize = 127;

/// A message of `HealthCheckRequest`, with its prefix: the body of a call.
///
/// # Panics
///
/// For a name that is longer than [`SERVICE_BYTES_MAX`].
#[must_use]
pub fn encode_request(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        // Field 1 with a length, which is one byte up to 127.
        let len = u8::try_from(service.len()).ok().filter(|len| *len <= 127);
        message.extend([0x0a, len.expect("the caller bounds the name")]);
        message.extend(service.as_bytes());
    }
    let len = u32::try_from(message.len()).expect("it is short").to_be_bytes();
    [&[0][..], &len, &message].concat()
}

/// The status in the body of an answer; without the field it is [`ServingStatus::Unknown`].
///
/// # Errors
///
/// [`HealthError`].
pub fn decode_response(body: &[u8]) -> Result<ServingStatus, HealthError> {
    let (prefix, rest) = body.split_first_chunk::<MESSAGE_PREFIX_LEN>().ok_or(HealthError::Cut)?;
    let [is_compressed, len @ ..] = *prefix;
    if is_compressed != 0 {
        return Err(HealthError::Compressed);
    }
    let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(usize::MAX);
    let mut message = rest.get(..len).ok_or(HealthError::Cut)?;
    let mut status = ServingStatus::Unknown;
    while !message.is_empty() {
        let key = varint(&mut message)?;
        match (key >> 3, key & 7) {
            (1, 0) => {
                status = match varint(&mut message)? {
                    0 => ServingStatus::Unknown,
                    1 => ServingStatus::Serving,
                    2 => ServingStatus::NotServing,
                    3 => ServingStatus::ServiceUnknown,
                    other => ServingStatus::Other(other),
                };
            }
            // Fields of later versions.
            (1.., 0) => drop(varint(&mut message)?),
            (1.., 1) => skip(&mut message, 8)?,
            (1.., 2) => {
                let len = varint(&mut message)?;
                skip(&mut message, len)?;
            }
            (1.., 5) => skip(&mut message, 4)?,
            _ => return Err(HealthError::Malformed),
        }
    }
    Ok(status)
}

fn skip(message: &mut &[u8], len: u64) -> Result<(), HealthError> {
    let len = usize::try_from(len).map_err(|_| HealthError::Malformed)?;
    *message = message.get(len..).ok_or(HealthError::Malformed)?;
    Ok(())
}

/// A number of up to ten bytes, seven bits each, the lowest first.
fn varint(message: &mut &[u8]) -> Result<u64, HealthError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first().ok_or(HealthError::Malformed)?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(HealthError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_service_or_the_whole_server() {
        assert_eq!(encode_request(""), [0, 0, 0, 0, 0]);
        assert_eq!(encode_request("a.B"), [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'.', b'B']);
        assert_eq!(encode_request(&"x".repeat(SERVICE_BYTES_MAX)).len(), 5 + 2 + SERVICE_BYTES_MAX);
    }

    #[test]
    fn an_answer_is_a_status_or_none() {
        use ServingStatus::{NotServing, Other, ServiceUnknown, Serving, Unknown};
        for (message, expected) in [
            (&[][..], Ok(Unknown)),
            (&[8, 0], Ok(Unknown)),
            (&[8, 1], Ok(Serving)),
            (&[8, 2], Ok(NotServing)),
            (&[8, 3], Ok(ServiceUnknown)),
            (&[8, 0x81, 1], Ok(Other(129))),
            // The last one counts.
            (&[8, 1, 8, 2], Ok(NotServing)),
            // Fields that are not known.
            (&[0x12, 2, 9, 9, 0x1d, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 8, 1], Ok(Serving)),
            (&[8], Err(HealthError::Malformed)),
            (&[0, 1], Err(HealthError::Malformed)),
            (&[0x12, 3, 1], Err(HealthError::Malformed)),
            (&[0x13], Err(HealthError::Malformed)),
            (
                &[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                Err(HealthError::Malformed),
            ),
        ] {
            let len = u32::try_from(message.len()).unwrap().to_be_bytes();
            let body = [&[0][..], &len, message].concat();
            assert_eq!(decode_response(&body), expected, "{message:?}");
            for end in 0..body.len() {
                assert_eq!(decode_response(&body[..end]), Err(HealthError::Cut), "{end} bytes");
            }
        }
        assert_eq!(decode_response(&[1, 0, 0, 0, 0]), Err(HealthError::Compressed));
    }
}
