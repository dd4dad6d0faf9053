//! The admin interface: HTTP/1.1 for operators and scrapers, on the control thread.
//!
//! It asks the control loop and, through it, the workers, by messages that are waited for only by the
//! one who asked: the slowest scraper stalls no worker. Built on hyper without a framework: there
//! are a dozen paths and one method that is not GET.
//!
//! A client that can reach its address can read everything here and drain the process; it belongs on
//! the loopback interface or on a unix socket. What scrapers and probes need has an address of its
//! own ([`Scope::Metrics`]). Browsers are kept away by the name that they ask for (`hosts`), and
//! from draining for another site.

mod answer;
mod connections;
mod explain;
mod hosts;
mod listing;
mod old_process;
mod pages;
mod patience;
mod pieces;
mod ready;
mod server;
mod socket;
mod unread;

pub(crate) use answer::Answer;
pub(crate) use connections::Rows;
pub(crate) use explain::Explained;
pub use explain::{ExplainRequest, ExplainStep};
pub(crate) use hosts::Hosts;
pub(crate) use listing::{EndpointsShown, Listing, Sort};
pub use old_process::OldProcess;
pub(crate) use old_process::OldRows;
pub(crate) use pages::{Page, index};
#[cfg(test)]
pub(crate) use pieces::Pieces;
pub(crate) use pieces::{Content, PieceWriter, pieces, write_config};
pub(crate) use ready::Readiness;
pub(crate) use server::{Scope, Server};
pub use socket::own_admin_files;
pub use socket::{AdminSocket, set_socket_mode};
pub(crate) use unread::{UnreadPage, UnreadPages};

use config::snapshot::{Address, ClusterId, EndpointId, ListenerId};
use telemetry::events::LabelId;
use telemetry::{ClusterTotals, EndpointTotals, ListenerTotals};
use tokio::sync::oneshot;

use crate::health::KnownHealth;
use crate::moves::{ConnectionId, Moved, NotMoved};

/// What control knows of an endpoint at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndpointReading {
    pub(crate) totals: EndpointTotals,
    pub(crate) health: KnownHealth,
}

/// What control knows of a listener at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListenerReading {
    pub(crate) totals: ListenerTotals,
    /// Where it is bound, with the ports that the system chose.
    pub(crate) bound: Vec<Address>,
}

/// What the admin interface asks the control loop.
#[derive(Debug)]
pub(crate) enum Query {
    /// A page that control can write at once.
    Page(Page, oneshot::Sender<Content>),
    /// The slow requests, which the log writer keeps.
    Slow { as_text: bool, reply: oneshot::Sender<Vec<u8>> },
    /// Some connections of a worker.
    Connections { worker: u32, first: u32, reply: oneshot::Sender<Rows> },
    /// The process whose place this one took, as long as it ends what it still has.
    OldProcess { reply: oneshot::Sender<Option<OldProcess>> },
    /// Some connections of that process.
    OldConnections { worker: u32, slot: u32, reply: oneshot::Sender<OldRows> },
    /// A connection is to move to that worker, or one of the process with this id.
    Move {
        process: Option<u32>,
        connection: ConnectionId,
        to: u32,
        reply: oneshot::Sender<Result<Moved, NotMoved>>,
    },
    /// The way of a request.
    Explain { request: ExplainRequest, reply: oneshot::Sender<Explained> },
    /// What these endpoints have counted, in this order, and how they are.
    Endpoints { ids: Vec<(ClusterId, EndpointId)>, reply: oneshot::Sender<Vec<EndpointReading>> },
    /// How many exchanges ended at each of these endpoints.
    EndpointExchanges { ids: Vec<LabelId>, reply: oneshot::Sender<Vec<u64>> },
    /// What these clusters have counted.
    Clusters { ids: Vec<LabelId>, reply: oneshot::Sender<Vec<ClusterTotals>> },
    /// The same of listeners, and where they are bound.
    Listeners { ids: Vec<ListenerId>, reply: oneshot::Sender<Vec<ListenerReading>> },
    /// The same of route tables: their rules, and behind these their weighted clusters.
    Routes { ids: Vec<LabelId>, reply: oneshot::Sender<Vec<Vec<u64>>> },
}
