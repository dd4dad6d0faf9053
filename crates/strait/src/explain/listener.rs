//! The listener that a request comes to, and the filter chain that its connection meets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use config::chains::ConnectionFacts;
use config::snapshot::{
    Address, ChainId, ChainMatch, Detected, ListenerChain, ListenerProtocol, OriginalDestination,
    SourceType,
};
use proxy::Snapshot;
use proxy::misdirected::is_misdirected;
use wire::h1::{Scan, decode_request};
use wire::head::HeadIndex;
use wire::tls::ServerName;

use super::client;
use super::request::Request;
use super::rules::{is_tunnel, limits_of};
use super::tls::is_secure;
use super::{Listener, Story};

/// Where connections go that rules of the machine bring to a listener. It is of a block that is for documentation (RFC 5737), so that no
/// endpoint has it.
pub(super) const ELSEWHERE: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 1));

/// The listener that the request comes to, and why this one.
pub(super) fn choose_listener<'s>(
    snapshot: &'s Snapshot,
    name: Option<&str>,
    request: &Request,
) -> Result<(&'s Arc<Listener>, &'static str), String> {
    let all = || {
        let each = snapshot.listeners.iter();
        let each = each.map(|found| format!("{} ({})", found.name, addresses_text(found)));
        each.collect::<Vec<_>>().join(", ")
    };
    if let Some(name) = name {
        let found = snapshot.listeners.iter().find(|listener| &*listener.name == name);
        let found = found.map(|listener| (listener, "from --listener"));
        return found.ok_or_else(|| format!("there is no listener {name}; there are: {}", all()));
    }
    if let Some(port) = request.port {
        let mut listeners = snapshot.listeners.iter();
        if let Some(listener) = listeners.find(|it| address_of(it, port, request).is_some()) {
            return Ok((listener, "which has the URL's port"));
        }
    }
    if let Some(port) = request.port.filter(|_| request.names_port) {
        return Err(format!(
            "nothing listens on port {port} for this URL; there are: {}; write the port of one, or \
             --listener NAME",
            all()
        ));
    }
    match snapshot.listeners.first() {
        Some(only) if snapshot.listeners.len() == 1 => Ok((only, "the only one")),
        _ => Err(format!("the URL matches no listener; add --listener NAME, one of: {}", all())),
    }
}

/// Where a listener listens.
pub(super) fn addresses_text(listener: &Listener) -> String {
    let each = listener.addresses.iter().map(ToString::to_string);
    each.collect::<Vec<_>>().join(", ")
}

/// The address of a listener that takes a request to this port. One on all addresses takes those of its family.
fn address_of(listener: &Listener, port: u16, request: &Request) -> Option<SocketAddr> {
    let is_for = |address: &SocketAddr| {
        let is_ours = request.ip.is_none_or(|ip| address.ip() == ip);
        let is_open = address.ip().is_unspecified() && is_of_family(*address, request);
        address.port() == port && (is_ours || is_open)
    };
    tcp_addresses(listener).find(is_for)
}

/// Whether the URL has an IP address of the same family.
fn is_of_family(address: SocketAddr, request: &Request) -> bool {
    request.ip.is_some_and(|ip| ip.is_ipv4() == address.is_ipv4())
}

fn tcp_addresses(listener: &Listener) -> impl Iterator<Item = SocketAddr> {
    listener.addresses.iter().filter_map(|address| match address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) => None,
    })
}

/// Where the request's connection goes: to [`own_address`], or where it was going before rules of the machine brought it here, which nothing
/// says.
pub(super) fn destination(listener: &Listener, request: &Request) -> Option<SocketAddr> {
    if has_original_destination(listener) {
        return Some(ELSEWHERE);
    }
    own_address(listener, request)
}

/// The address with the URL's port, or the first, of the URL's family if there is one. A listener on all addresses says nothing of which it is; the URL does if it has one.
pub(super) fn own_address(listener: &Listener, request: &Request) -> Option<SocketAddr> {
    let of_port = request.port.and_then(|port| address_of(listener, port, request));
    let of_family = || tcp_addresses(listener).find(|it| is_of_family(*it, request));
    let address = of_port.or_else(of_family).or_else(|| tcp_addresses(listener).next())?;
    let is_open = address.ip().is_unspecified() && is_of_family(address, request);
    let asked = request.ip.filter(|_| is_open);
    Some(asked.map_or(address, |ip| SocketAddr::new(ip, address.port())))
}

/// Whether connections have a destination from before rules of the machine brought them here.
pub(super) fn has_original_destination(listener: &Listener) -> bool {
    listener.socket.original_destination != OriginalDestination::Off
}

/// Where the request's connection comes from directly: from the client, or from the first address that may send PROXY headers.
pub(super) fn direct_source(listener: &Listener, request: &Request) -> Option<IpAddr> {
    match listener.http.proxy_protocol.as_deref() {
        Some([range, ..]) => Some(range.network()),
        Some([]) | None => request.from,
    }
}

/// Says what is not known of where the connection comes from, and is asked for by chains.
fn describe_source(
    story: &mut Story,
    listener: &Listener,
    request: &Request,
    direct_source: Option<IpAddr>,
) {
    let is_asked =
        |asks: fn(&ChainMatch) -> bool| listener.chains.iter().any(|chain| asks(&chain.matches));
    let is_unix_only = tcp_addresses(listener).next().is_none();
    if request.from.is_none()
        && !is_unix_only
        && is_asked(|asked| asked.source_type != SourceType::Any)
    {
        story.line(
            "chain",
            "the client's address is not known, so no chain with `source_type` matches: add --from ADDRESS",
        );
    }
    if !is_unix_only && is_asked(|asked| !asked.source_ports.is_empty()) {
        story.line(
            "chain",
            "the client's port is not known, so no chain with `source_ports` matches",
        );
    }
    if listener.chains.asks_direct_source() && listener.http.proxy_protocol.is_some() {
        let from =
            direct_source.map_or_else(|| "an unknown address".to_owned(), |ip| ip.to_string());
        story.line("chain", format!("for `direct_sources`, the PROXY header comes from {from}"));
    }
}

/// Describes the filter chain of a connection that carries HTTP, and returns the listener with that
/// chain's settings; none if no chain matches.
pub(super) fn describe_chain<'s>(
    story: &mut Story,
    listener: &'s Arc<Listener>,
    request: &Request,
) -> Option<(&'s Listener, Option<ChainId>)> {
    if listener.chains.is_empty() {
        return Some((listener, None));
    }
    let is_secure = is_secure(listener, request);
    let protocol = match listener.protocol {
        _ if is_secure => Detected::Tls,
        ListenerProtocol::Http2 => Detected::Http2,
        ListenerProtocol::Auto | ListenerProtocol::Http1 | ListenerProtocol::Tcp => Detected::Http1,
        ListenerProtocol::Rpc(name) => Detected::Rpc(name),
    };
    let name = ServerName::parse(request.server_name.as_bytes());
    let server_name = name.as_ref().filter(|_| is_secure).map(ServerName::as_str);
    let alpn = if is_secure { &client::ALPN[..] } else { &[] };
    let what = match server_name {
        Some(name) => format!("TLS for {name} from here"),
        None if is_secure => "TLS without a name from here".to_owned(),
        None => "plain HTTP from here".to_owned(),
    };
    let destination = destination(listener, request);
    let protocol = Some(protocol);
    let direct_source = direct_source(listener, request);
    let facts = ConnectionFacts {
        source: request.from,
        source_port: None,
        direct_source,
        destination,
        protocol,
        server_name,
        alpn,
    };
    describe_source(story, listener, request, direct_source);
    let asks_where = |chain: &ListenerChain<_>| !chain.matches.destinations.is_empty();
    if destination.is_some_and(|at| at.ip().is_unspecified())
        && listener.chains.iter().any(asks_where)
    {
        story.line(
            "chain",
            "it is not known to which address of this machine the connection goes, so no chain with `destinations` matches: write \
             the address in the URL, and the host as --header 'host: …'",
        );
    }
    let asks_destination =
        |chain: &ListenerChain<_>| asks_where(chain) || !chain.matches.destination_ports.is_empty();
    if has_original_destination(listener) && listener.chains.iter().any(asks_destination) {
        story.line(
            "chain",
            format!(
                "the connection's original destination is not known here: `destinations` and `destination_ports` are compared with {ELSEWHERE}"
            ),
        );
    }
    let chain = listener.chains.choose(&facts);
    match chain {
        Some(chain) => story.line("chain", format!("{}: matches {what}", chain.name)),
        None if listener.has_default => {
            story.line("chain", format!("none matches {what}; the listener's own settings apply"));
        }
        None => {
            story.line("outcome", "the connection is closed (no_chain): no chain matches it");
            return None;
        }
    }
    Some((chain.map_or(&**listener, |chain| &chain.listener), chain.map(|chain| chain.id)))
}

/// Says whether the request belongs to another filter chain than its connection matched.
pub(super) fn describe_misdirected(
    story: &mut Story,
    listener: &Listener,
    met: Option<ChainId>,
    request: &Request,
) {
    let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
    let head = decode_request(&request.head, &mut scan, &limits_of(listener), &mut index);
    let Ok(Some((head, _))) = head else { return };
    if !is_secure(listener, request) || is_tunnel(&head) {
        return;
    }
    let destination = destination(listener, request);
    let alpn: &[u8] = match listener.seen_by(met).protocol {
        ListenerProtocol::Http1 => b"http/1.1",
        _ => b"h2",
    };
    let (protocol, alpn) = (Some(Detected::Tls), &[alpn][..]);
    let facts = ConnectionFacts {
        source: request.from,
        source_port: None,
        direct_source: direct_source(listener, request),
        destination,
        protocol,
        server_name: None,
        alpn,
    };
    if is_misdirected(listener, met, head.host(), &facts) {
        let (host, asked) = (String::from_utf8_lossy(head.host()), &request.server_name);
        story.line(
            "request",
            format!(
                "for {host} belongs to another chain than a connection for {asked}: a client that \
                 shares the connection gets 421, and asks again over its own"
            ),
        );
    }
}

/// Describes where a TCP listener forwards its bytes.
pub(super) fn describe_relay(story: &mut Story, snapshot: &Snapshot, listener: &Listener) {
    let relay = listener.relay.iter().flat_map(|relay| &relay.clusters);
    for (id, weight) in relay {
        if let Some(cluster) = snapshot.cluster(*id) {
            story.line("relay", format!("cluster {}, weight {weight}", cluster.name));
        }
    }
    story.line("outcome", "the bytes are relayed unchanged; no request is parsed");
}
