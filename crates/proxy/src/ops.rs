//! What the proxy asks the worker to do.

use std::num::NonZeroU32;
use std::sync::Arc;

use config::checks::CheckResult;
use config::outlier::OutlierKind;
use config::snapshot::{Address, ClusterId, EndpointId, Keepalive, ListenerId};
use telemetry::cause::Cause;

use crate::Snapshot;
use crate::filter::Question;
use crate::keys::{ConnKey, ExchangeKey};

/// Something for the worker to do, in the order asked for.
#[derive(Debug)]
pub enum Op {
    /// Connect to `address` and say how it went with [`Proxy::on_connected`](crate::Proxy::on_connected).
    Connect {
        /// The connection that waits for it.
        connection: ConnKey,
        /// Where to.
        address: Address,
        /// How.
        options: ConnectOptions,
    },
    /// Send what [`Proxy::unsent`](crate::Proxy::unsent) holds, as far as the socket takes it.
    Send(ConnKey),
    /// Read again if there is something to read: the connection was held back until now.
    Read(ConnKey),
    /// Send these few bytes, as far as the socket takes them at once: the last that are said on a
    /// connection of TLS, which no deadline waits for.
    SendNow(ConnKey, Box<[u8]>),
    /// Say with [`Proxy::on_undelivered`](crate::Proxy::on_undelivered) how much of what was sent the
    /// peer has not acknowledged.
    Undelivered(ConnKey),
    /// Send nothing more, once.
    ShutdownWrite(ConnKey),
    /// Close the socket. The key is stale already.
    Close(ConnKey),
    /// As [`Op::Close`], but with a reset, so that the peer does not take what it has for whole.
    Reset(ConnKey),
    /// Stop accepting on this listener and close its sockets.
    CloseListener(ListenerId),
    /// A filter asks; the answer goes to [`Proxy::on_answer`](crate::Proxy::on_answer).
    Ask {
        /// The exchange that waits.
        exchange: ExchangeKey,
        /// What it waits for.
        question: Question,
    },
    /// Tell control that so many connections of a listener were closed: its clients held more than its
    /// `buffered_max`.
    BufferedOverflow {
        /// The listener whose bound it is.
        listener: ListenerId,
        /// How many.
        closed: u32,
    },
    /// Tell control that an endpoint reached a bound of its cluster's `outlier`.
    OutlierFound {
        /// The cluster.
        cluster: ClusterId,
        /// Which of its endpoints.
        endpoint: EndpointId,
        /// Which bound.
        kind: OutlierKind,
    },
    /// Tell control how a health check ended.
    Checked {
        /// The number of the check.
        number: u64,
        /// How.
        result: CheckResult,
    },
    /// Tell control that an endpoint said of itself that it is not healthy.
    FailedItself {
        /// The cluster.
        cluster: ClusterId,
        /// Which of its endpoints.
        endpoint: EndpointId,
    },
    /// Wake the workers whose numbers, modulo 64, are in this set, this one excepted: something is left for them.
    Wake(u64),
    /// This worker does not use this snapshot any more; control frees it.
    Retire(Arc<Snapshot>),
}

/// Why a connection was not established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectFailure {
    /// [`Cause::ConnectFailed`] or [`Cause::OutOfDescriptors`].
    pub cause: Cause,
    /// The name of the kernel's error, such as `ECONNREFUSED`; empty if the kernel had none.
    pub errno: &'static str,
}

/// How to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// TCP keepalive.
    pub keepalive: Option<Keepalive>,
    /// Whether the first bytes may travel with the SYN.
    pub fast_open: bool,
    /// Mark of its packets.
    pub mark: Option<NonZeroU32>,
}
