//! nginx's gRPC module, a client of HTTP/2 with its own ideas of one, passes every case on to
//! Strait.

use anyhow::Result;

use crate::claim::Claim;
use crate::lab::Lab;
use crate::nginx::Nginx;
use crate::peer::Peer;
use crate::strait::{Options, Strait};

pub(super) const CLAIM: Claim = Claim {
    module: module_path!(),
    needs: &[Peer::GrpcClient, Peer::GrpcServer, Peer::Nginx],
    holds,
};

fn holds(lab: &Lab) -> Result<()> {
    let server = super::Server::start(lab)?;
    let options = Options { cluster: "protocol: http2", ..Options::default() };
    let strait = Strait::forwarding_to(lab, server.address, options)?;
    let http = format!(
        "  upstream strait {{ server {}; keepalive 8; }}
  server {{ listen LISTEN http2; location / {{ grpc_pass grpc://strait; }} }}",
        strait.address()
    );
    let nginx = Nginx::start(lab, &http)?;
    for case in super::CASES {
        super::holds_for(lab, case, nginx.address())?;
    }
    Ok(())
}
