//! What is wrong with a frame.

use std::fmt;

/// Which rule a frame breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcError {
    /// Its body has more bytes than the bound.
    BodyTooLarge,
    /// The connection is about to end, and takes no further requests.
    GoingAway,
    /// Its head has more bytes than the bound.
    HeadTooLarge,
    /// A rule of its protocol, in words: lower-case, without a full stop.
    Malformed(&'static str),
    /// More requests than the bound wait for their answers on the connection.
    RequestsTooMany,
    /// A frame that the peer has no reason to send: a response from a client, a request from a service.
    Unexpected,
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BodyTooLarge => "the body is too large",
            Self::GoingAway => "the connection is about to end",
            Self::HeadTooLarge => "the head is too large",
            Self::Malformed(rule) => rule,
            Self::RequestsTooMany => "too many requests wait for their answers",
            Self::Unexpected => "a frame that this side does not take",
        })
    }
}

impl std::error::Error for RpcError {}
