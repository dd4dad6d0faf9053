//! The host of the endpoint that an attempt has chosen, in a request that was encoded before.

use std::ops::Range;

use wire::buffer::Buffer;
use wire::proxy_protocol;

use crate::exchange::Route;
use crate::exchange::exchanges::Exchanges;
use crate::exchange::queued_request::{Form, QueuedRequest};
use crate::keys::ExchangeKey;
use crate::tools::buffers::Buffers;

/// In front of the value that is replaced. Each request has one such line.
const HOST: &[u8] = b"host:";

impl Exchanges {
    /// Gives a request the host of the endpoint at `place`, if its rule says so; its own, if that endpoint has none. Returns
    /// whether it did: a head that is at hand has another then.
    pub(crate) fn name_endpoint(
        &mut self,
        key: ExchangeKey,
        place: usize,
        request: &mut QueuedRequest,
        buffers: &mut Buffers,
    ) -> bool {
        let Some(exchange) = self.get_mut(key) else { return false };
        let Some(route) = exchange.route.as_ref().filter(|it| it.may_name_endpoint()) else {
            return false;
        };
        let takes_host = route.takes_endpoint_host;
        let Some(cluster) = exchange.cluster() else { return false };
        let endpoint = cluster.endpoints.get(place).filter(|_| takes_host);
        let host = endpoint.and_then(|endpoint| endpoint.host().cloned());
        let has_header = cluster.proxy_protocol.is_sent() && cluster.transports.own().tls.is_none();
        let Some(route) = &mut exchange.route else { return false };
        if host.is_some() && route.host_before.is_none() {
            // Kept though the cluster may have one endpoint: it may have others by the next attempt.
            route.host_before = request.host(has_header).map(|host| buffers.lease_with(host));
        }
        let before = route.host_before.as_ref().map(Buffer::filled);
        let Some(host) = host.as_ref().map(|host| host.as_bytes()).or(before) else { return false };
        request.set_host(host, has_header, buffers);
        true
    }
}

impl Route {
    /// Whether an attempt may change the host: its rule says so, or said so before the exchange was restored under another
    /// configuration, and the request has the host of an endpoint.
    #[inline]
    pub(crate) const fn may_name_endpoint(&self) -> bool {
        self.takes_endpoint_host || self.host_before.is_some()
    }
}

impl QueuedRequest {
    /// The host of a request of HTTP, of which nothing was sent. `has_header`: a PROXY header is in front of it.
    fn host(&self, has_header: bool) -> Option<&[u8]> {
        let find =
            |place: usize, bytes| Some((bytes, find_host_behind(bytes, has_header && place == 0)?));
        let (bytes, range) = match &self.form {
            Form::Stream { head, .. } => (head.filled(), find_host(head.filled())?),
            Form::Alone { .. } => {
                self.outbox.buffers().enumerate().find_map(|(at, it)| find(at, it))?
            }
        };
        bytes.get(range)
    }

    /// Replaces it.
    fn set_host(&mut self, host: &[u8], has_header: bool, buffers: &mut Buffers) {
        match &mut self.form {
            Form::Stream { head, .. } => {
                if let Some(range) = find_host(head.filled()) {
                    buffers.splice(head, range, host);
                }
            }
            Form::Alone { .. } => {
                let mut is_first = true;
                let find = |bytes: &[u8]| {
                    find_host_behind(bytes, std::mem::take(&mut is_first) && has_header)
                };
                self.outbox.replace(find, host, buffers);
            }
        }
    }
}

/// Where the value of the `Host` field is, behind a PROXY header if there is one.
fn find_host_behind(bytes: &[u8], has_header: bool) -> Option<Range<usize>> {
    let start = if has_header { header_len(bytes) } else { 0 };
    let found = find_host(bytes.get(start..)?)?;
    Some(start + found.start..start + found.end)
}

/// Octets of the PROXY header at the beginning, which may hold any.
fn header_len(bytes: &[u8]) -> usize {
    proxy_protocol::decode(bytes).ok().flatten().map_or(0, |(_, len)| len)
}

/// Where the value of the `Host` field is in an encoded head.
fn find_host(head: &[u8]) -> Option<Range<usize>> {
    let mut start = 0;
    loop {
        let rest = head.get(start..)?;
        let len = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let line = rest.get(..len)?;
        if line.is_empty() {
            return None;
        }
        if let Some((name, value)) = line.split_at_checked(HOST.len())
            && name.eq_ignore_ascii_case(HOST)
        {
            let spaces = value.iter().take_while(|octet| matches!(octet, b' ' | b'\t')).count();
            return Some(start + HOST.len() + spaces..start + len);
        }
        start += len + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_found_in_heads_alone() {
        let cases: [(&[u8], Option<&[u8]>); 8] = [
            (b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", Some(b"a.example")),
            (b"GET / HTTP/1.1\r\na: b\r\nHOST:\ta:80\r\nc: d\r\n\r\n", Some(b"a:80")),
            (b"GET / HTTP/1.1\r\nhost: \r\n\r\n", Some(b"")),
            (b"GET /host:x HTTP/1.1\r\na: host: x\r\nhost:y\r\n\r\n", Some(b"y")),
            (b"GET / HTTP/1.1\r\nhosts: x\r\n\r\nhost: body\r\n", None),
            (b"GET / HTTP/1.1\r\nx-host: x\r\n\r\n", None),
            (b"GET / HTTP/1.1\r\nhos", None),
            (b"", None),
        ];
        for (head, host) in cases {
            let found = find_host(head).map(|range| &head[range]);
            assert_eq!(found, host, "{}", head.escape_ascii());
        }
    }

    #[test]
    fn another_host_leaves_the_rest_as_it_is() {
        let mut buffers = Buffers::default();
        for host in ["b", "a.example", "a.much.longer.example"] {
            let head = b"GET / HTTP/1.1\r\nhost: a.example\r\nb: c\r\n\r\nbody";
            let mut buffer = buffers.lease_with(head);
            let range = find_host(buffer.filled()).unwrap();
            buffers.splice(&mut buffer, range, host.as_bytes());
            let expected = format!("GET / HTTP/1.1\r\nhost: {host}\r\nb: c\r\n\r\nbody");
            assert_eq!(buffer.filled(), expected.as_bytes());
            buffers.give_back(buffer);
        }
    }
}
