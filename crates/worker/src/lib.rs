//! One thread, one loop, its own connections.
//!
//! A [`Worker`] joins a [`proxy::Proxy`], which decides what to do, with a [`World`], which does
//! it: the kernel in production, a virtual network in the simulation. It waits for events, passes
//! them to the proxy, and carries out the operations that the proxy asks for. It never waits for
//! anything else.
#![forbid(unsafe_code)]

mod kernel;
mod mailbox;
mod moving;
mod sockets;
mod turn;
mod world;

pub use kernel::{
    DescriptorBounds, Kernel, Listener, bind, bind_beside, inherit, probe_mark, set_options,
    take_over,
};
pub use mailbox::{
    Give, Given, InheritedSocket, KeptListener, Mailbox, Mailboxes, Message, Origin, Ping, Pong,
    Postbox, REPORTS_MAX, ReplacingSocket, Report, ReportBody, ReportQueue, Reporter,
    SaveBalancing, Take, Taken, Wanted, Weigh, Weighed, Work,
};
pub use moving::Moving;
pub use turn::{GROUP_PART_MAX, Settings, TurnError, Worker};
pub use world::{AcceptError, Accepted, ConnectError, ConnectState, Event, Ready, Spliced, World};
