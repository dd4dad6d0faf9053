//! The protocols on either side of the proxies, and what depends on them: their configs, the
//! service behind them, and who takes part.

use serde::Serialize;

use super::kinds::ProxyKind;

/// The protocols on either side of the proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Setup {
    /// HTTP/1.1 on both sides.
    Http1,
    /// The same, through tables of many rules.
    Routes,
    /// HTTP/2 by prior knowledge from the client, HTTP/1.1 to the service.
    Http2ToHttp1,
    /// HTTP/2 by prior knowledge on both sides.
    Http2,
    /// The same, with nginx as the service: 128 streams at a time on a connection.
    Http2ToNginx,
    /// The same, in front of a service of gRPC.
    Grpc,
    /// The same, in front of a service that never answers.
    Silent,
    /// TCP, which carries requests and responses of HTTP/1.1.
    Tcp,
    /// TCP, which carries many bytes from the service to the client.
    Stream,
    /// HTTP/1.1 on both sides, within TLS from the client.
    #[serde(untagged)]
    Tls(Tls),
}

/// What TLS is measured by. The key exchange is X25519 and the cipher AES-128-GCM in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Tls {
    /// Whole handshakes of TLS 1.3, a key of RSA.
    #[serde(rename = "new-rsa-1.3")]
    NewRsa13,
    /// Whole handshakes of TLS 1.2, a key of RSA.
    #[serde(rename = "new-rsa-1.2")]
    NewRsa12,
    /// Whole handshakes of TLS 1.3, a key of P-256.
    #[serde(rename = "new-p256-1.3")]
    NewP256,
    /// Handshakes of TLS 1.3 that go on with an earlier session.
    #[serde(rename = "resumed-1.3")]
    Resumed,
    /// Requests on connections that are kept.
    #[serde(rename = "keep")]
    Keep,
    /// Many bytes from the service to the client.
    #[serde(rename = "download")]
    Download,
}

impl Setup {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 15] = [
        Self::Http1,
        Self::Routes,
        Self::Http2ToHttp1,
        Self::Http2,
        Self::Http2ToNginx,
        Self::Grpc,
        Self::Silent,
        Self::Tcp,
        Self::Stream,
        Self::Tls(Tls::NewRsa13),
        Self::Tls(Tls::NewRsa12),
        Self::Tls(Tls::NewP256),
        Self::Tls(Tls::Resumed),
        Self::Tls(Tls::Keep),
        Self::Tls(Tls::Download),
    ];

    /// The directory of the proxies' configs, below `bench/configs`.
    pub(crate) fn configs(self) -> &'static str {
        match self {
            Self::Http1 | Self::Routes => "http1",
            Self::Http2ToHttp1 => "http2-http1",
            Self::Http2 | Self::Http2ToNginx | Self::Grpc | Self::Silent => "http2",
            Self::Tcp | Self::Stream => "tcp",
            Self::Tls(_) => "tls",
        }
    }

    /// The certificate that proxies show, if they show one.
    pub(crate) fn certificate(self) -> Option<Certificate> {
        match self {
            Self::Tls(Tls::NewRsa13 | Tls::NewRsa12) => Some(Certificate::Rsa2048),
            Self::Tls(Tls::NewP256 | Tls::Resumed | Tls::Keep | Tls::Download) => {
                Some(Certificate::P256)
            }
            _ => None,
        }
    }

    /// The service behind the proxies.
    pub(crate) fn service(self) -> Service {
        let upstream = |arguments| Service::Ours("upstream", arguments);
        match self {
            Self::Http1 | Self::Routes | Self::Http2ToHttp1 | Self::Tcp => {
                upstream(&["--protocol", "http1"])
            }
            Self::Http2 => upstream(&["--protocol", "http2"]),
            Self::Http2ToNginx => Service::Nginx,
            Self::Grpc => upstream(&["--protocol", "grpc"]),
            Self::Silent => upstream(&["--protocol", "silent"]),
            Self::Stream => Service::Ours("stream", &[]),
            Self::Tls(Tls::Download) => Service::Ours("stream", &["--http", "yes"]),
            Self::Tls(_) => upstream(&["--protocol", "http1"]),
        }
    }

    /// Whether `proxy` takes part.
    pub(crate) fn has(self, proxy: ProxyKind) -> bool {
        match proxy {
            ProxyKind::Strait | ProxyKind::Envoy => true,
            ProxyKind::Haproxy => self != Self::Routes,
            ProxyKind::StraitLog => self == Self::Http1,
            ProxyKind::StraitBatched => matches!(self, Self::Tls(Tls::NewRsa13 | Tls::NewRsa12)),
            // It speaks HTTP/2 to the upstream for gRPC alone, a connection for each request.
            ProxyKind::Nginx => !matches!(
                self,
                Self::Routes | Self::Http2 | Self::Http2ToNginx | Self::Grpc | Self::Silent
            ),
            ProxyKind::Relay => matches!(self, Self::Http1 | Self::Tcp | Self::Stream),
        }
    }

    /// Whether the generator can do without a proxy.
    pub(crate) fn works_without_proxy(self) -> bool {
        !matches!(self, Self::Http2ToHttp1 | Self::Tls(_))
    }

    /// What is counted: each of these is a request, in results.
    pub(crate) fn unit(self) -> &'static str {
        if matches!(self, Self::Stream | Self::Tls(Tls::Download)) { "MiB" } else { "request" }
    }
}

/// The service behind the proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// A program of `bench/`, with its arguments besides the address.
    Ours(&'static str, &'static [&'static str]),
    /// nginx, from the file in `bench/configs/services`.
    Nginx,
}

/// A self-signed certificate, which clients do not check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certificate {
    /// With a key of RSA, 2,048 bits.
    Rsa2048,
    /// With a key on the curve P-256.
    P256,
}

impl Certificate {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Rsa2048, Self::P256];

    /// Name of its files, without their endings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa",
            Self::P256 => "p256",
        }
    }

    /// The key type for `openssl req`.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Rsa2048 => "-newkey rsa:2048",
            Self::P256 => "-newkey ec -pkeyopt ec_paramgen_curve:P-256",
        }
    }
}
