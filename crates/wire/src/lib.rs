//! Codecs: bytes in, values out, and back.
//!
//! Nothing here reads a socket or a clock, starts a thread, or uses configuration or metrics. A
//! decoder returns `None` (or `NeedMore`) when bytes are missing and an error only when the bytes
//! that are there are wrong. What a codec keeps between two calls is plain data that can be saved
//! and restored elsewhere.
//!
//! Where to look: [`buffer`] holds bytes in flight, [`head`] is what every HTTP codec turns a
//! message's head into, [`h1`] is HTTP/1 and [`h2`] HTTP/2, [`grpc`] is what gRPC adds to them, [`rpc`] is what
//! other RPC protocols have in common,
//! [`path`] and [`host`] decide what is routed on, [`proxy_protocol`] is the PROXY header of a
//! connection, [`tls`] reads the ClientHello and has the record layer for connections whose
//! handshake is done, and [`upgrade`] reads `Upgrade` lists.
#![forbid(unsafe_code)]

pub mod buffer;
pub mod detect;
pub mod grpc;
pub mod h1;
pub mod h2;
pub mod head;
pub mod host;
pub mod path;
pub mod proxy_protocol;
pub mod rpc;
pub mod tls;
pub mod upgrade;

mod octets;
