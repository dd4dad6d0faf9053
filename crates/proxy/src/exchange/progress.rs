//! How far an exchange has come: what later decisions depend on. The [`ExchangeRecord`](super::record::ExchangeRecord)
//! beside it only tells.

/// How far an exchange has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Both sides' bytes belong to another protocol, or to none that is known.
    pub(crate) is_tunnel: bool,
    /// A response has begun, or a reply: there is no other for this request any more.
    pub(crate) has_response: bool,
    /// In a tunnel: whether the upstream has sent its last byte.
    pub(crate) is_response_complete: bool,
    /// Its rule has a `retry`, and it counts among the requests of its cluster that may be sent again.
    pub(crate) has_retries: bool,
    /// It counts among those that were.
    pub(crate) is_retry: bool,
    /// Times that the request was given to a connection.
    pub(crate) attempts: u8,
    /// 1xx responses that were sent on.
    pub(crate) interim_responses: u8,
    /// Bytes of the request's body that have come.
    pub(crate) request_bytes: u64,
}
