//! A request out of the command line, as the bytes that a client would send.

use std::net::IpAddr;

/// A request's head and where its URL leads.
#[derive(Debug)]
pub(super) struct Request {
    /// The whole head, as bytes on the wire. What is wrong with it is for the decoder to say.
    pub(super) head: Vec<u8>,
    /// The URL's port, which is that of its scheme if it names none; none if it is only a path.
    pub(super) port: Option<u16>,
    /// Whether the URL names its port.
    pub(super) names_port: bool,
    /// The URL's host, if it is an address.
    pub(super) ip: Option<IpAddr>,
    /// Whether it is `https`; none if the URL is only a path.
    pub(super) is_secure: Option<bool>,
    /// The host as TLS would ask for it.
    pub(super) server_name: String,
    /// The client's address, if that is said.
    pub(super) from: Option<IpAddr>,
}

impl Request {
    /// The request of `method` for `url`, a URL or a target, with these header lines. `CONNECT` is
    /// for a host and a port.
    pub(super) fn new(method: &str, url: &str, headers: &[String]) -> Result<Self, String> {
        let is_tunnel = method == "CONNECT";
        let (is_secure, authority, target) = match url.split_once("://") {
            _ if is_tunnel => (None, Some(url), url),
            Some((scheme @ ("http" | "https"), rest)) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (authority, target) = rest.split_at(end);
                (Some(scheme == "https"), Some(authority), without_fragment(target))
            }
            Some((scheme, _)) => {
                return Err(format!(
                    "{scheme}: only http:// and https:// are taken here; write http://HOST/PATH"
                ));
            }
            None if url.starts_with('/') || url == "*" => (None, None, without_fragment(url)),
            None => return Err(not_url(url)),
        };
        let target = match target {
            "" => "/".to_owned(),
            target if target.starts_with('?') => format!("/{target}"),
            target => target.to_owned(),
        };
        let default_port = if is_secure == Some(true) { 443 } else { 80 };
        let (host, named_port) = match authority {
            // Which listener it comes to, and what TLS is asked for there, it does not say.
            Some(authority) if is_tunnel => match split_port(authority) {
                Ok((_, Some(_))) if !authority.contains('/') => (None, None),
                _ => return Err(format!("{authority}: CONNECT is for HOST:PORT")),
            },
            Some(authority) => {
                let (host, port) = split_port(authority)?;
                (Some(host), port)
            }
            None => (None, None),
        };
        let names_port = named_port.is_some();
        let port = named_port.or_else(|| host.map(|_| default_port));
        let names_host = headers.iter().any(|line| is_host(line));
        let named = headers.iter().find_map(|line| {
            let value = line.split_once(':').filter(|_| is_host(line))?.1;
            Some(split_port(value.trim()).ok()?.0)
        });
        // Curl and browsers ask for the host of the URL.
        let server_name = host.or(named).unwrap_or("localhost").trim_matches(['[', ']']).to_owned();
        // What is connected to under an IPv4-mapped address is IPv4.
        let ip = host.and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
        let ip = ip.map(|ip| ip.to_canonical());
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        if !names_host {
            head += &format!("Host: {}\r\n", authority.unwrap_or_default());
        }
        for line in headers {
            if !line.contains(':') {
                return Err(format!("-H '{line}': a header is written as 'name: value'"));
            }
            head += &format!("{line}\r\n");
        }
        head += "\r\n";
        let head = head.into_bytes();
        Ok(Self { head, port, names_port, ip, is_secure, server_name, from: None })
    }
}

/// What a text that is neither a URL nor a path was probably meant to be: a host alone, mostly.
fn not_url(url: &str) -> String {
    if url.is_empty() || url.contains(char::is_whitespace) {
        return format!("{url:?} is not a URL; write http://HOST/PATH, or /PATH");
    }
    format!("{url}: is not a URL; write http://{url}, or https://{url}")
}

fn without_fragment(target: &str) -> &str {
    target.split_once('#').map_or(target, |(before, _)| before)
}

fn is_host(line: &str) -> bool {
    line.split_once(':').is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case("host"))
}

/// Host and port, if there is one.
fn split_port(authority: &str) -> Result<(&str, Option<u16>), String> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => match port.parse() {
            Ok(port) => Ok((host, Some(port))),
            Err(_) => Err(format!("{authority}: {port} is not a port")),
        },
        _ => Ok((authority, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_become_what_a_client_would_send() {
        for (url, headers, head, port) in [
            ("http://a.b/x?y=1#z", &[][..], "GET /x?y=1 HTTP/1.1\r\nHost: a.b\r\n\r\n", Some(80)),
            ("https://a.b", &[], "GET / HTTP/1.1\r\nHost: a.b\r\n\r\n", Some(443)),
            ("http://a.b:81", &[], "GET / HTTP/1.1\r\nHost: a.b:81\r\n\r\n", Some(81)),
            ("http://[::1]:82?q", &[], "GET /?q HTTP/1.1\r\nHost: [::1]:82\r\n\r\n", Some(82)),
            ("http://[::1]/", &[], "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", Some(80)),
            ("/x", &["host: c"], "GET /x HTTP/1.1\r\nhost: c\r\n\r\n", None),
            (
                "http://a/",
                &["Host: c", "k: v"],
                "GET / HTTP/1.1\r\nHost: c\r\nk: v\r\n\r\n",
                Some(80),
            ),
        ] {
            let headers: Vec<_> = headers.iter().map(|line| (*line).to_owned()).collect();
            let request = Request::new("GET", url, &headers).unwrap();
            assert_eq!(String::from_utf8(request.head).unwrap(), head);
            assert_eq!(request.port, port);
        }
    }

    #[test]
    fn a_tunnel_is_asked_for_by_host_and_port() {
        let request = Request::new("CONNECT", "db.example:5432", &[]).unwrap();
        let head = "CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n";
        assert_eq!(String::from_utf8(request.head).unwrap(), head);
        assert_eq!((request.port, request.is_secure), (None, None));
        for wrong in ["db.example", "http://db.example:80", "http://a/", "/x", "a:b"] {
            assert!(Request::new("CONNECT", wrong, &[]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_url_or_header_is_refused_with_a_reason() {
        for (url, header, word) in [
            ("ftp://a/", None, "http://"),
            ("a.b/c", None, "write http://a.b/c, or"),
            ("a.b", None, "write http://a.b, or"),
            ("a.b?x=1", None, "write http://a.b?x=1, or"),
            ("a.b:81", None, "write http://a.b:81, or"),
            ("", None, "\"\" is not a URL; write http://HOST/PATH"),
            ("http://a:x/", None, "is not a port"),
            ("http://a/", Some("no colon"), "name: value"),
        ] {
            let headers: Vec<_> = header.into_iter().map(str::to_owned).collect();
            let error = Request::new("GET", url, &headers).unwrap_err();
            assert!(error.contains(word), "{error}");
            if let Some((_, hint)) = word.split_once("write ").filter(|_| error.contains("a.b")) {
                let meant = hint.trim_end_matches(", or");
                assert!(Request::new("GET", meant, &headers).is_ok(), "{meant}");
            }
        }
    }
}
