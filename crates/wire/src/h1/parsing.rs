//! How strictly a response is read.

use serde::{Deserialize, Serialize};

/// Which deviations of a response from RFC 9112 are accepted.
///
/// Requests are always read strictly: a client may gain from a request that is read in two ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parsing {
    /// Only what RFC 9112 allows.
    #[default]
    Strict,
    /// Also deviations that can be read in one way only, and that common servers and proxies
    /// accept:
    ///
    /// - LF in place of CRLF, at the end of every line of a head or of none;
    /// - more than one space before the code of a status line, up to `CODE_SPACES_MAX`;
    /// - an empty line more behind an interim response;
    /// - a transfer coding in HTTP/1.0, if it is `chunked` and no length is beside it; the
    ///   connection is not used again;
    /// - white space behind the size of a chunk;
    /// - trailer fields that mean nothing there, which go no further. Those about the connection or
    ///   the transfer coding are refused all the same.
    ///
    /// Messages are sent on in strict form.
    Tolerant,
}

/// Spaces before the code of a status line.
pub(super) const CODE_SPACES_MAX: usize = 8;

/// The line ends of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnds {
    CrLf,
    Lf,
}

impl LineEnds {
    /// The line end that begins with `octet` and ends the first line of a head; it ends all others.
    pub(super) fn of(octet: Option<&u8>, parsing: Parsing) -> Self {
        match (octet, parsing) {
            (Some(b'\n'), Parsing::Tolerant) => Self::Lf,
            _ => Self::CrLf,
        }
    }
}
