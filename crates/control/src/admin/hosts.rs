//! Which names the admin interface answers to.
//!
//! A page in a browser can give its own DNS name the address of this interface (DNS rebinding) and is
//! then of the same origin, so that nothing else keeps it from reading `/config` or posting `/drain`.
//! Its requests still have that name as their `Host`. Addresses and `localhost` are no names that a
//! page could take.

use std::net::Ipv6Addr;
use std::sync::Arc;

use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Uri, Version};

/// The names that requests may have as their host.
#[derive(Clone, Debug)]
pub(crate) enum Hosts {
    /// Any: for a unix socket, and where there is nothing to protect.
    Any,
    /// Addresses, `localhost` and these, in lower case.
    Known(Arc<[Box<str>]>),
}

impl Hosts {
    /// The first host of a request that it may not have.
    pub(super) fn stranger<'r>(&self, uri: &'r Uri, headers: &'r HeaderMap) -> Option<&'r str> {
        let Self::Known(names) = self else { return None };
        let in_headers = headers.get_all(header::HOST).into_iter();
        let in_headers = in_headers.map(|value| value.to_str().unwrap_or("(not text)"));
        let all = uri.authority().map(hyper::http::uri::Authority::as_str).into_iter();
        all.chain(in_headers).find(|host| !is_known(host, names))
    }
}

/// What is wrong with the `Host` of a request, if something is: RFC 9112, section 3.2, says 400 then, whatever the target is. What
/// a client of HTTP/1.0 does not send is not missing.
pub(super) fn fault(version: Version, headers: &HeaderMap) -> Option<&'static str> {
    let mut hosts = headers.get_all(header::HOST).into_iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version < Version::HTTP_11 => None,
        (None, _) => Some("the Host field is missing"),
        (Some(_), Some(_)) => Some("there is more than one Host field"),
        (Some(host), None) if is_valid(host) => None,
        (Some(_), None) => Some("the Host field is not a host"),
    }
}

/// Whether this is a host with or without a port (RFC 3986, section 3.2.2), or empty, which is for targets without one.
fn is_valid(host: &HeaderValue) -> bool {
    let host = host.to_str().ok().and_then(host_of);
    host.is_some_and(|host| host.starts_with('[') || host.chars().all(is_of_name))
}

/// The host of an authority, if its port is one: a name, or an IPv6 address in its brackets.
fn host_of(authority: &str) -> Option<&str> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, _) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            address.len() + "[]".len()
        }
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at_checked(end)?;
    (port.is_empty() || is_port(port)).then_some(host)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~%!$&'()*+,;=".contains(c)
}

fn is_known(authority: &str, names: &[Box<str>]) -> bool {
    let Some(host) = host_of(authority) else { return false };
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_name = |name: &str| host.eq_ignore_ascii_case(name);
    // `127.1` and `0x7f000001` are addresses to some and names to others, so they are not known.
    let is_address = host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok();
    is_address || is_name("localhost") || names.iter().any(|name| is_name(name))
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_is_required_from_http_1_1_on_and_a_valid_one_always() {
        let fault = |version, sent: &[&'static [u8]]| {
            let mut headers = HeaderMap::new();
            for host in sent {
                headers.append(header::HOST, HeaderValue::from_bytes(host).unwrap());
            }
            fault(version, &headers)
        };
        let (old, new) = (Version::HTTP_10, Version::HTTP_11);
        assert_eq!(fault(old, &[]), None);
        assert_eq!(fault(new, &[]), Some("the Host field is missing"));
        for version in [old, new] {
            let valid: [&[u8]; 8] =
                [b"", b"a", b"a.b:80", b"a:", b"127.0.0.1:1", b"[::1]", b"[::1]:1", b"a_b-c.%64"];
            for host in valid {
                assert_eq!(fault(version, &[host]), None, "{host:?}");
            }
            assert_eq!(fault(version, &[b"a", b"a"]), Some("there is more than one Host field"));
            let invalid: [&[u8]; 9] =
                [b"a b", b"a, b", b"u@a", b"a/b", b"http://a", b"a:b", b"[::1", b"a:1:2", b"\xff"];
            for host in invalid {
                assert_eq!(
                    fault(version, &[host]),
                    Some("the Host field is not a host"),
                    "{host:?}"
                );
            }
        }
    }

    fn stranger(hosts: &Hosts, uri: &str, sent: &[&'static str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for host in sent {
            headers.append(header::HOST, HeaderValue::from_static(host));
        }
        hosts.stranger(&uri.parse().unwrap(), &headers).map(str::to_owned)
    }

    #[test]
    fn addresses_localhost_and_names_of_the_file_are_known_and_nothing_else() {
        let hosts = Hosts::Known(["admin.example".into()].into());
        for host in [
            "127.0.0.1",
            "127.0.0.1:9901",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:9901",
            "localhost",
            "LocalHost:9901",
            "localhost.",
            "admin.example:9901",
            "Admin.Example",
        ] {
            assert_eq!(stranger(&hosts, "/", &[host]), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9901",
            "x.admin.example",
            "admin.example.evil",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1",
            "[::1].evil.example",
            "[evil.example]",
            "127.0.0.1:9901.evil.example",
            "127.1",
            "2130706433",
            "",
        ] {
            assert_eq!(stranger(&hosts, "/", &[host]).as_deref(), Some(host));
        }
    }

    #[test]
    fn every_place_of_a_host_counts_and_none_is_well_for_old_clients() {
        let hosts = Hosts::Known(Arc::new([]));
        assert_eq!(stranger(&hosts, "/", &[]), None);
        assert_eq!(stranger(&hosts, "/", &["localhost", "a"]).as_deref(), Some("a"));
        assert_eq!(stranger(&hosts, "http://a/", &["localhost"]).as_deref(), Some("a"));
        assert_eq!(stranger(&Hosts::Any, "http://a/", &["b"]), None);
    }
}
