//! What a worker reports to control.
//!
//! It stands here since workers and control both see this crate, and neither sees the other. `A` names the exchange
//! whose filter asks, `F` is the built filter.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::resource::cluster::checks::CheckResult;
use crate::resource::cluster::outlier::OutlierKind;
use crate::snapshot::{ClusterId, EndpointId, ListenerId, Snapshot};

/// A report from a worker to control.
#[derive(Debug)]
pub struct Report<F, A> {
    /// The worker that reports, from 0.
    pub worker: u32,
    /// What it reports.
    pub body: ReportBody<F, A>,
}

/// The content of a report.
#[derive(Debug)]
pub enum ReportBody<F, A> {
    /// The worker has taken up its first configuration and serves.
    Started,
    /// The worker has ended on request. No report follows.
    Stopped,
    /// The worker cannot go on, for this reason. No report follows.
    Failed(String),
    /// A filter asks a question.
    Question {
        /// The exchange whose filter asks.
        exchange: A,
        /// The question.
        question: Question,
    },
    /// The worker serves by the configuration of this version, that it was sent.
    TakenUp(u64),
    /// The worker uses this configuration no more; control frees it, off the data path.
    Retired(Arc<Snapshot<F>>),
    /// Some connections.
    Described {
        /// The request's own number.
        request: u64,
        /// The connections in the slots that were looked at.
        connections: ConnectionSummaries,
    },
    /// A listener could not be used any more.
    ListenerBroken {
        /// The listener that does not accept.
        listener: ListenerId,
        /// The name of the kernel's error.
        errno: &'static str,
    },
    /// No file descriptor or memory was left to accept a connection with; tried again soon. The name of the kernel's error, empty where
    /// the process keeps what is left for others.
    OutOfDescriptors(&'static str),
    /// A group of connections that was to return from elsewhere cannot go on, and nothing else has it: they were reset.
    GroupLost {
        /// How many.
        connections: u32,
        /// Why it was refused.
        reason: String,
    },
    /// Connections were closed, since the clients of a listener held more than its `buffered_max`.
    BufferedOverflow {
        /// Which listener.
        listener: ListenerId,
        /// How many were.
        closed: u32,
    },
    /// An endpoint reached a bound of its cluster's `outlier`.
    OutlierFound {
        /// The cluster.
        cluster: ClusterId,
        /// Which of its endpoints.
        endpoint: EndpointId,
        /// Which bound.
        kind: OutlierKind,
    },
    /// A health check ended.
    Checked {
        /// The number of the check.
        number: u64,
        /// How.
        result: CheckResult,
    },
    /// An endpoint reported that it is not healthy itself (`x-envoy-immediate-health-check-fail`).
    FailedItself {
        /// The cluster.
        cluster: ClusterId,
        /// Which of its endpoints.
        endpoint: EndpointId,
    },
    /// The drain is over; the worker ends.
    Drained {
        /// Exchanges that took longer than the drain may.
        cut_off: u32,
    },
}

/// What a suspended filter waits for: data, so that it can be written down with its
/// exchange and be asked again elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Who is asked, by a name that control knows.
    pub topic: Arc<str>,
    /// What is asked, in a form that the filter and the one it asks agree on.
    pub payload: Arc<[u8]>,
}

impl Question {
    /// Whether a source is asked for a cluster.
    #[must_use]
    pub fn is_for_cluster(&self) -> bool {
        *self.topic == *ON_DEMAND_TOPIC
    }
}

/// The topic of a question for a cluster that a source is asked for on demand; its payload is the cluster's name. The answer is
/// empty once the cluster is there, and says why it will not be otherwise.
pub const ON_DEMAND_TOPIC: &str = "cluster on demand";

/// Some connections of a worker.
#[derive(Clone, Debug, Default)]
pub struct ConnectionSummaries {
    /// In the order of their slots.
    pub connections: Vec<ConnectionSummary>,
    /// The slot to go on with, if there are more.
    pub next: Option<u32>,
}

/// One connection, for people.
#[derive(Clone, Debug)]
pub struct ConnectionSummary {
    /// Its slot in its worker.
    pub slot: u32,
    /// How often that slot was used before.
    pub generation: u32,
    /// Which way it faces, and what it belongs to.
    pub side: ConnectionSide,
    /// The peer; none for unix sockets.
    pub peer: Option<SocketAddr>,
    /// A word for where it stands.
    pub state: &'static str,
    /// Since it was accepted or established.
    pub age: Duration,
    /// Requests that it carried.
    pub requests: u32,
    /// Streams that are open on it, if it speaks HTTP/2.
    pub streams: Option<usize>,
    /// Bytes read and not consumed.
    pub inbox_bytes: usize,
    /// Bytes not sent.
    pub outbox_bytes: usize,
    /// What its exchange asked for; empty if it has none.
    pub target: String,
}

/// Which way a connection faces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionSide {
    /// A client's, of this listener.
    Downstream(ListenerId),
    /// To this endpoint of this cluster.
    Upstream(ClusterId, EndpointId),
}
