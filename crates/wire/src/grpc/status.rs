//! The outcome of a call: `grpc-status` and `grpc-message`.

use serde::{Deserialize, Serialize};

use crate::octets::hex_value;

/// A code of `grpc-status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Status {
    /// The call succeeded.
    Ok = 0,
    /// The caller ended it.
    Cancelled = 1,
    /// Nothing else is known, or there was no status.
    Unknown = 2,
    /// An argument that would be wrong at any time.
    InvalidArgument = 3,
    /// The deadline passed first.
    DeadlineExceeded = 4,
    /// Something asked for is not there.
    NotFound = 5,
    /// Something to be made is there already.
    AlreadyExists = 6,
    /// The caller is known and may not do this.
    PermissionDenied = 7,
    /// A quota, memory or a limit on sizes.
    ResourceExhausted = 8,
    /// The state of the service does not allow it.
    FailedPrecondition = 9,
    /// A conflict with others, such as a transaction.
    Aborted = 10,
    /// Past the end of something.
    OutOfRange = 11,
    /// No such method.
    Unimplemented = 12,
    /// Something that must always hold does not.
    Internal = 13,
    /// Not at the moment; it may be tried again.
    Unavailable = 14,
    /// Data is lost for good.
    DataLoss = 15,
    /// The caller is not known.
    Unauthenticated = 16,
}

impl Status {
    /// Every code, in order.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// Reads the value of `grpc-status`: a number without leading zeros.
    ///
    /// `None` is another number, or none at all. Either counts as [`Status::Unknown`], but a proxy
    /// passes it on as it is.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.digits().as_bytes() == value)
    }

    /// What a response of HTTP `status` without a `grpc-status` means
    /// (http-grpc-status-mapping). Not to be used the other way round.
    #[must_use]
    pub fn from_http(status: u16) -> Self {
        match status {
            400 | 431 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502..=504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }

    /// The code.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The code as it stands in `grpc-status`.
    #[must_use]
    pub fn digits(self) -> &'static str {
        self.texts().0
    }

    /// The code's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.texts().1
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Ok => ("0", "OK"),
            Self::Cancelled => ("1", "CANCELLED"),
            Self::Unknown => ("2", "UNKNOWN"),
            Self::InvalidArgument => ("3", "INVALID_ARGUMENT"),
            Self::DeadlineExceeded => ("4", "DEADLINE_EXCEEDED"),
            Self::NotFound => ("5", "NOT_FOUND"),
            Self::AlreadyExists => ("6", "ALREADY_EXISTS"),
            Self::PermissionDenied => ("7", "PERMISSION_DENIED"),
            Self::ResourceExhausted => ("8", "RESOURCE_EXHAUSTED"),
            Self::FailedPrecondition => ("9", "FAILED_PRECONDITION"),
            Self::Aborted => ("10", "ABORTED"),
            Self::OutOfRange => ("11", "OUT_OF_RANGE"),
            Self::Unimplemented => ("12", "UNIMPLEMENTED"),
            Self::Internal => ("13", "INTERNAL"),
            Self::Unavailable => ("14", "UNAVAILABLE"),
            Self::DataLoss => ("15", "DATA_LOSS"),
            Self::Unauthenticated => ("16", "UNAUTHENTICATED"),
        }
    }
}

/// Appends the value of `grpc-message` that stands for `message`, which ought to be UTF-8.
///
/// Three octets for one at worst. Spaces at either end are encoded too, though they need not be: a
/// field value has none there, and HTTP/2 refuses those that do (RFC 9113, section 8.2.1).
pub fn encode_message(message: &[u8], out: &mut Vec<u8>) {
    let last = message.len().saturating_sub(1);
    for (place, &octet) in message.iter().enumerate() {
        match octet {
            b' ' if place > 0 && place < last => out.push(octet),
            b'%' | b' ' | ..0x20 | 0x7f.. => {
                out.extend([b'%', hex_digit(octet >> 4), hex_digit(octet & 0xf)]);
            }
            _ => out.push(octet),
        }
    }
}

/// Appends the message that the value of `grpc-message` stands for. A `%` without two hexadecimal
/// digits behind it stands for itself: a message may be odd, but not lost.
pub fn decode_message(value: &[u8], out: &mut Vec<u8>) {
    let mut rest = value;
    while let Some((octet, behind)) = escaped(rest).or_else(|| unescaped(rest)) {
        out.push(octet);
        rest = behind;
    }
}

/// The octet that three in front stand for, and what is behind them.
fn escaped(value: &[u8]) -> Option<(u8, &[u8])> {
    let [b'%', high, low, behind @ ..] = value else {
        return None;
    };
    Some((hex_value(*high)? << 4 | hex_value(*low)?, behind))
}

fn unescaped(value: &[u8]) -> Option<(u8, &[u8])> {
    value.split_first().map(|(&octet, behind)| (octet, behind))
}

fn hex_digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'A' + value - 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_as_it_is_written() {
        for (code, status) in (0..).zip(Status::ALL) {
            assert_eq!(status.code(), code);
            assert_eq!(status.digits(), code.to_string());
            assert_eq!(Status::parse(status.digits().as_bytes()), Some(status));
            let name = status.name().replace('_', "");
            assert!(name.eq_ignore_ascii_case(&format!("{status:?}")), "{name}");
        }
    }

    #[test]
    fn other_values_are_no_status() {
        for value in
            [&b""[..], b"17", b"99", b"00", b"01", b"-1", b"+1", b" 1", b"1 ", b"1a", b"OK"]
        {
            assert_eq!(Status::parse(value), None, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn http_statuses_mean_what_the_table_says() {
        for status in 0..=999 {
            let expected = match status {
                400 => Status::Internal,
                401 => Status::Unauthenticated,
                403 => Status::PermissionDenied,
                404 => Status::Unimplemented,
                429 => Status::Unavailable,
                431 => Status::Internal,
                502 => Status::Unavailable,
                503 => Status::Unavailable,
                504 => Status::Unavailable,
                _ => Status::Unknown,
            };
            assert_eq!(Status::from_http(status), expected, "{status}");
        }
    }

    #[test]
    fn messages_are_percent_encoded_and_back() {
        for (message, value) in [
            (&b""[..], &b""[..]),
            (b"no such method", b"no such method"),
            (b"100%", b"100%25"),
            (b"a\r\nb\t\x7f", b"a%0D%0Ab%09%7F"),
            (b"~!\"#$&'()", b"~!\"#$&'()"),
            ("\u{e9}\u{1f980}".as_bytes(), b"%C3%A9%F0%9F%A6%80"),
            (b" a  b ", b"%20a  b%20"),
            (b" ", b"%20"),
            (b"\0\xff", b"%00%FF"),
        ] {
            let mut out = Vec::new();
            encode_message(message, &mut out);
            assert_eq!(out, value, "{}", message.escape_ascii());
            let mut back = Vec::new();
            decode_message(value, &mut back);
            assert_eq!(back, message, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn a_message_that_is_wrongly_encoded_is_not_lost() {
        for (value, message) in [
            (&b"%"[..], &b"%"[..]),
            (b"%2", b"%2"),
            (b"%2x", b"%2x"),
            (b"%x2", b"%x2"),
            (b"%%41", b"%A"),
            (b"%2%41", b"%2A"),
            (b"%c3%a9", b"\xc3\xa9"),
            (b"%2541", b"%41"),
            (b"\xff\n", b"\xff\n"),
        ] {
            let mut out = Vec::new();
            decode_message(value, &mut out);
            assert_eq!(out, message, "{}", value.escape_ascii());
        }
    }
}
