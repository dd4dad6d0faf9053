//! A request's fields as filters and rules see them: without those that a client may not set, and with those that Strait sets.

use std::net::IpAddr;

use config::snapshot::HttpOptions;
use telemetry::cause::Cause;
use tls::PeerCertificate;
use wire::head::RequestHead;

use crate::connection::transport::ClientCert;
use crate::exchange::forwarded::{self, ForwardedFacts};
use crate::exchange::lookalikes::{self, Dropped};
use crate::tools::peer_address::PeerAddress;
use crate::tools::random::Random;

/// What is known of the request's connection.
#[derive(Clone, Copy, Debug)]
pub struct PreviewFacts<'a> {
    /// The client's end.
    pub peer: &'a PeerAddress,
    /// The end of this process.
    pub local: &'a PeerAddress,
    /// Those of the listener or filter chain.
    pub options: &'a HttpOptions,
    /// Whether it came over TLS that ends here.
    pub is_secure: bool,
    /// The certificate that the client showed there.
    pub client_cert: Option<&'a PeerCertificate>,
}

/// What is known of a request by its fields.
#[derive(Clone, Copy, Debug)]
pub struct Previewed {
    /// Whether the listener lets its fields through. It is refused otherwise.
    pub is_let_through: bool,
    /// The client that a trusted hop named.
    pub client: Option<IpAddr>,
}

/// What comes of a request's fields.
pub(crate) struct Prepared {
    /// How many were dropped, unless the listener refuses the request.
    pub(crate) dropped: Result<Dropped, Cause>,
    /// The client that a trusted hop named.
    pub(crate) client: Option<IpAddr>,
}

/// Removes the fields that a client may not set, and sets those that Strait sets before filters and rules look at a request. `scratch` is
/// room to put values together in.
pub(crate) fn prepare(
    head: &mut RequestHead<'_>,
    facts: &ForwardedFacts<'_>,
    random: &mut Random,
    scratch: &mut Vec<u8>,
) -> Prepared {
    let dropped = lookalikes::screen(head, facts.options);
    let client = forwarded::rewrite(head, facts, random, scratch);
    Prepared { dropped, client }
}

/// The same for a request that is only asked about. Values that are random, and what was shown to the client (`By` of
/// `x-forwarded-client-cert`), are others than those of a request.
pub fn preview(head: &mut RequestHead<'_>, facts: &PreviewFacts<'_>) -> Previewed {
    let PreviewFacts { peer, local, options, is_secure, client_cert } = *facts;
    let client_cert = client_cert.map(|peer| ClientCert { peer, shown_uri: None });
    let facts = ForwardedFacts { peer, local, options, is_secure, is_early: false, client_cert };
    let Prepared { dropped, client } = prepare(head, &facts, &mut Random::new(0), &mut Vec::new());
    Previewed { is_let_through: dropped.is_ok(), client }
}
