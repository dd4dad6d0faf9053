//! Which proxies are compared, and which load generators.

use std::net::SocketAddr;

/// Which proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProxyKind {
    /// Strait, nothing logged, no stage times.
    Strait,
    /// Strait with the access log in a file and stage times.
    #[value(name = "strait+log")]
    StraitLog,
    /// Strait with `signing: batched`.
    #[value(name = "strait+batched")]
    StraitBatched,
    /// HAProxy.
    Haproxy,
    /// nginx.
    Nginx,
    /// Envoy.
    Envoy,
    /// The bare relay of `bench/`.
    Relay,
}

impl ProxyKind {
    /// All, in the order of a round.
    pub(crate) const ALL: [Self; 7] = [
        Self::Strait,
        Self::StraitLog,
        Self::StraitBatched,
        Self::Haproxy,
        Self::Nginx,
        Self::Envoy,
        Self::Relay,
    ];

    /// Whether this is the proxy of this repository.
    pub(crate) fn is_strait(self) -> bool {
        matches!(self, Self::Strait | Self::StraitLog | Self::StraitBatched)
    }

    /// Name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Strait => "strait",
            Self::StraitLog => "strait+log",
            Self::StraitBatched => "strait+batched",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Envoy => "envoy",
            Self::Relay => "relay",
        }
    }

    pub(crate) fn config(self) -> Option<&'static str> {
        match self {
            Self::Strait => Some("strait.yaml"),
            Self::StraitLog => Some("strait+log.yaml"),
            Self::StraitBatched => Some("strait+batched.yaml"),
            Self::Haproxy => Some("haproxy.cfg"),
            Self::Nginx => Some("nginx.conf"),
            Self::Envoy => Some("envoy.yaml"),
            Self::Relay => None,
        }
    }

    /// The arguments that run it in the foreground with `config`.
    pub(crate) fn arguments(
        self,
        config: &str,
        listen: SocketAddr,
        upstream: SocketAddr,
    ) -> Vec<String> {
        let words = match self {
            Self::Strait | Self::StraitLog | Self::StraitBatched => format!("run -c {config}"),
            Self::Haproxy => format!("-db -f {config}"),
            Self::Nginx => format!("-c {config}"),
            Self::Envoy => {
                format!("-c {config} --concurrency 1 --disable-hot-restart --log-level error")
            }
            Self::Relay => format!("--listen {listen} --upstream {upstream}"),
        };
        words.split(' ').map(str::to_owned).collect()
    }
}

/// Which program asks as fast as it is answered, in HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum GeneratorKind {
    /// wrk, one thread.
    Wrk,
    /// `load` of `bench/`: a fourth cheaper, so faster proxies are less held up by it.
    Load,
}
