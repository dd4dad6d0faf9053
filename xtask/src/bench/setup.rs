//! What is spoken on either side of the proxies, and what follows from it: their configs, the
//! service behind them, and who takes part.

use serde::Serialize;

use super::proxy::Kind;

/// What is spoken on either side of the proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Setup {
    /// HTTP/1.1 on both sides.
    Http1,
    /// HTTP/2 by prior knowledge from the client, HTTP/1.1 to the service.
    Http2ToHttp1,
    /// HTTP/2 by prior knowledge on both sides.
    Http2,
    /// The same, in front of a service of gRPC.
    Grpc,
    /// The same, in front of a service that never answers.
    Silent,
    /// TCP, which carries requests and responses of HTTP/1.1.
    Tcp,
    /// TCP, which carries many bytes from the service to the client.
    Stream,
}

impl Setup {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] = [
        Self::Http1,
        Self::Http2ToHttp1,
        Self::Http2,
        Self::Grpc,
        Self::Silent,
        Self::Tcp,
        Self::Stream,
    ];

    /// The directory of the proxies' configs, below `bench/configs`.
    pub(crate) fn configs(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2ToHttp1 => "http2-http1",
            Self::Http2 | Self::Grpc | Self::Silent => "http2",
            Self::Tcp | Self::Stream => "tcp",
        }
    }

    /// The program of `bench/` that serves, with its arguments besides the address.
    pub(crate) fn service(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Http1 | Self::Http2ToHttp1 | Self::Tcp => ("upstream", &["--protocol", "http1"]),
            Self::Http2 => ("upstream", &["--protocol", "http2"]),
            Self::Grpc => ("upstream", &["--protocol", "grpc"]),
            Self::Silent => ("upstream", &["--protocol", "silent"]),
            Self::Stream => ("stream", &[]),
        }
    }

    /// Whether `proxy` takes part.
    pub(crate) fn has(self, proxy: Kind) -> bool {
        match proxy {
            Kind::Strait | Kind::Haproxy | Kind::Envoy => true,
            Kind::StraitLog => self == Self::Http1,
            // It speaks HTTP/2 to the upstream for gRPC alone, a connection for each request.
            Kind::Nginx => !matches!(self, Self::Http2 | Self::Grpc | Self::Silent),
            Kind::Relay => matches!(self, Self::Http1 | Self::Tcp | Self::Stream),
        }
    }

    /// Whether the generator can do without a proxy.
    pub(crate) fn works_without_proxy(self) -> bool {
        self != Self::Http2ToHttp1
    }

    /// What is counted: each of these is a request, in results.
    pub(crate) fn unit(self) -> &'static str {
        if self == Self::Stream { "MiB" } else { "request" }
    }
}
