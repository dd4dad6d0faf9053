//! The event types, one file per area.
//!
//! Times are nanoseconds. Text that came from a peer is borrowed and bounded where it is copied.
//! Labels are ids of configured things or members of closed sets, never text from a peer, so the
//! number of series has the configuration's size: by listener (connections and exchanges), by
//! rule, by cluster, and by cause, status or stage, of which there are a few dozen each.

mod config;
mod connection;
mod exchange;
mod tls;
mod upstream;
mod worker;

pub use config::{
    AccessLogWriteFailed, BreakersOfCluster, CertificateInUse, CheckCounted, ConcurrencyOfCluster,
    ConfigAccepted, ConfigRejected, ConfigResources, ConfigTakenUp, ConnectionMoved, ControlTurned,
    DemandOutcome, DemandsEnded, EJECTION_REASONS, EjectionCounted, HANDOVER_FAILURES,
    HANDOVER_RESULTS, HandoverEnded, HandoverFailed, HealthOfCluster, MemoryBounded,
    SourceAnswered, SourceHeard, SourceKind, SourceResources, StateWrites,
};
pub use connection::{
    ConnectionClosed, ConnectionDetected, ConnectionFailed, ConnectionOpened, ConnectionRefused,
    DetectedProtocol, Relocated,
};
pub use exchange::{
    ExchangeFinished, ExchangeStarted, Fault, GrpcCall, HeaderDrop, HeadersDropped, Stages,
    TunnelStarted,
};
pub use tls::{SignaturesMade, TlsHandshakeFinished, TlsHandshakeKind};
pub use upstream::{
    ChoiceKind, CopyFinished, MirrorDrop, RetryDenial, UpstreamClosed, UpstreamConnectFailed,
    UpstreamConnected, UpstreamPaused, UpstreamRetried, UpstreamRetryDenied,
};
pub use worker::{ClusterGauges, ListenerGauges, WorkerGauges};

/// The slot of a configured thing's stable id, for labels: small, dense, used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelId {
    /// Place in the table.
    pub slot: u32,
    /// How often the place was given away before.
    pub generation: u32,
}
