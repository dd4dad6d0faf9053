//! The texts of a simulation's configurations.

use std::fmt::Write as _;

use super::{
    CALLS, CLUSTERS, Configurations, EDGE, ENDPOINTS, MIXED, ON_DEMAND, Patience, RAW, RELAY_EDGE,
    SIDE, endpoint, host_of,
};
use crate::filter::GATHERED_BYTES_MAX;
use crate::ledger::RETRY_ATTEMPTS_MAX;
use crate::named::NAMED;

impl Configurations {
    /// Another text.
    pub(super) fn text(&mut self) -> String {
        let mut text = String::from(
            "admin: { address: 127.0.0.1:9901 }\nworkers: 2\nlocality: eu/a\n\
             access_log: { output: stdout, format: json }\n\
             limits: { linger_timeout: ",
        );
        text += match self.patience {
            Patience::Long => "1m, drain_timeout: 1h }\nlisteners:\n",
            Patience::Short => "2s, drain_timeout: 10s }\nlisteners:\n",
        };
        let has_side = self.random.chance(500);
        for (name, address) in [("edge", EDGE), ("side", SIDE), ("mixed", MIXED)] {
            if name == "side" && !has_side {
                continue;
            }
            self.listener(name, address, &mut text);
        }
        let _ = write!(
            text,
            "  - name: relay\n    address: {RELAY_EDGE}\n    protocol: tcp\n    cluster: {RAW}\n"
        );
        self.listener_timeouts(&mut text);
        if self.calls.is_some() {
            let _ = write!(
                text,
                "  - name: calls\n    address: {CALLS}\n    protocol: pico\n    routes: calls\n"
            );
            self.listener_timeouts(&mut text);
        }
        text += "routes:\n";
        self.calls_route(&mut text);
        text += "  - name: all\n    rules:\n";
        text += "      - match: { path: /healthz }\n        respond: { status: 200, body: ok }\n";
        let timeout = if self.patience == Patience::Long { "1h" } else { "30s" };
        for cluster in CLUSTERS {
            let hash = *self.random.pick(&[
                "client_ip",
                "{ header: x-id, terminal: true }, client_ip",
                "{ cookie: { name: at, ttl: 1h } }",
                "{ constant: same }",
            ]);
            let version = *self.random.pick(&["v0", "v1", "{ header: x-id }"]);
            let is_named = self.dns.is_some() && cluster != ON_DEMAND;
            let target = if is_named { NAMED } else { cluster };
            let _ = write!(
                text,
                "      - match: {{ prefix: /{cluster}/ }}\n        cluster: {target}\n        \
                 timeout: {timeout}\n        hash: [{hash}]\n        subset: {{ version: {version} }}\n"
            );
            // From a generator of its own, so that seeds of before choose what they did.
            if self.random.split("hosts", 0).chance(300) {
                text += "        rewrite: { host_endpoint: true }\n";
            }
            self.retry(&mut text);
            if self.priorities.chance(300) {
                text += "        priority: high\n";
            }
            self.mirror(&mut text);
        }
        if self.has_demands || self.source.is_some() {
            let timeout = if self.patience == Patience::Long { "1h" } else { "3s" };
            let _ = writeln!(
                text,
                "resolvers: {{ on_demand_timeout: {timeout}, initial_fetch_timeout: {} }}",
                self.initial_fetch_timeout
            );
        }
        text += "clusters:\n";
        for (number, cluster) in CLUSTERS.into_iter().chain([RAW]).enumerate() {
            if !self.has_demands || cluster != ON_DEMAND {
                self.cluster(cluster, number, &mut text);
            }
        }
        self.calls_cluster(&mut text);
        self.mirror_cluster(&mut text);
        self.named_cluster(&mut text);
        for spare in 0..self.random.below(4) {
            let _ = write!(
                text,
                "  - name: spare{spare}\n    endpoints: [\"10.9.0.{}:1\"]\n",
                1 + self.random.below(3)
            );
        }
        text
    }

    fn calls_route(&self, text: &mut String) {
        if self.calls.is_none() {
            return;
        }
        let timeout = if self.patience == Patience::Long { "1h" } else { "30s" };
        let _ = write!(
            text,
            "  - name: calls\n    rules:\n      - match: {{ prefix: /calls/ }}\n        \
             cluster: calls\n        timeout: {timeout}\n"
        );
    }

    /// The cluster that calls go to: its services come behind all others.
    fn calls_cluster(&mut self, text: &mut String) {
        let Some(random) = &mut self.calls else { return };
        *text += "  - name: calls\n    protocol: pico\n    endpoints:\n";
        let first = random.below(u64::from(ENDPOINTS));
        for place in 0..ENDPOINTS {
            if u64::from(place) == first || random.chance(600) {
                let address = endpoint(CLUSTERS.len() + 1, place);
                let _ = writeln!(text, "      - {address}");
            }
        }
        let (requests, connections) = (random.between(1, 8), random.between(1, 6));
        let _ = write!(
            text,
            "    rpc: {{ requests_max: {requests} }}\n    connections_max: {connections}\n    \
             pending_max: 1000\n"
        );
        self.cluster_timeouts(text);
    }

    /// The copies of a rule's requests, if there are any.
    fn mirror(&mut self, text: &mut String) {
        let Some(random) = &mut self.mirrors else { return };
        let percent = *random.pick(&[0, 50, 100, 100]);
        let _ = writeln!(
            text,
            "        mirror: [{{ cluster: copies, percent: {percent}, host_suffix: '' }}]"
        );
    }

    /// The cluster that copies go to: its services come behind all others.
    fn mirror_cluster(&mut self, text: &mut String) {
        let number = CLUSTERS.len() + 1 + usize::from(self.calls.is_some());
        let Some(random) = &mut self.mirrors else { return };
        *text += "  - name: copies\n    endpoints:\n";
        let first = random.below(u64::from(ENDPOINTS));
        for place in 0..ENDPOINTS {
            if u64::from(place) == first || random.chance(600) {
                let _ = writeln!(text, "      - {}", endpoint(number, place));
            }
        }
        let connections = random.between(1, 6);
        let _ = write!(text, "    connections_max: {connections}\n    pending_max: 10\n");
        if random.chance(500) {
            *text += "    protocol: http2\n";
        }
        self.cluster_timeouts(text);
    }

    /// The cluster that has its endpoints from DNS, if there is one.
    fn named_cluster(&mut self, text: &mut String) {
        let Some(dns) = &mut self.dns else { return };
        let endpoints = dns.endpoints();
        let mut random = self.random.split("named", 0);
        let balance =
            random.pick(&["round_robin", "random", "least_request", "maglev", "ring_hash"]);
        let connections = random.between(1, 12);
        let _ = write!(
            text,
            "  - name: {NAMED}\n    endpoints: {endpoints}\n    balance: {balance}\n    \
             connections_max: {connections}\n    pending_max: 1000\n"
        );
        if random.chance(300) {
            let _ = writeln!(text, "    connections_per_endpoint_max: {}", random.between(1, 4));
        }
        self.cluster_timeouts(text);
        if self.named_speaks_http2 {
            *text += "    protocol: http2\n";
            self.http2(text);
        }
    }

    /// What a rule retries, if anything: never what is not idempotent.
    fn retry(&mut self, text: &mut String) {
        let random = &mut self.random;
        if !self.has_retries || random.chance(200) {
            return;
        }
        let on = *random.pick(&["5xx", "gateway_error", "reset", "5xx, retriable_status"]);
        let attempts = random.between(1, RETRY_ATTEMPTS_MAX);
        let base = random.between(1, 200);
        let body = *random.pick(&["0B", "1KiB", "64KiB", "1MiB"]);
        let _ = write!(
            text,
            "        retry: {{ on: [{on}], attempts_max: {attempts}, body_max: {body}, \
             backoff: {{ base: {base}ms, max: 1s }}"
        );
        if on.contains("status") {
            *text += ", status: [404]";
        }
        let is_bounded = self.patience == Patience::Short && random.chance(300);
        let is_hedged = self.patience == Patience::Short && attempts > 1 && self.hedges.chance(500);
        if is_hedged {
            let _ = write!(text, ", try_timeout: {}ms", self.hedges.between(1, 200));
        } else if is_bounded {
            *text += ", try_timeout: 1s";
        }
        *text += " }\n";
        if is_hedged {
            *text += "        hedge: { after: try_timeout }\n";
        }
    }

    fn listener(&mut self, name: &str, address: &str, text: &mut String) {
        let _ = write!(text, "  - name: {name}\n    address: {address}\n    routes: all\n");
        if name == "mixed" {
            let _ = writeln!(text, "    cluster: {RAW}");
        }
        self.http2(text);
        if self.random.chance(300) {
            *text += "    http: { via: strait, forwarded: both }\n";
        }
        if self.random.chance(300) {
            *text += "    filters:\n      - ask: { topic: sim }\n";
            if self.random.chance(500) {
                *text += "      - gather: {}\n";
                self.gathered_bytes_max = GATHERED_BYTES_MAX;
            }
        }
        let mut requests = self.random.split("listener requests", 0);
        if self.patience == Patience::Short && requests.chance(300) {
            let _ = writeln!(text, "    requests_max: {}", requests.between(1, 20));
        }
        self.listener_timeouts(text);
    }

    fn listener_timeouts(&self, text: &mut String) {
        *text += match self.patience {
            Patience::Long => {
                "    timeouts: { request_head: 1h, idle: 1h, request_body: 1h, detect: 1h, \
                 filter: 1h, response_write: 1h, tunnel_idle: 1h }\n"
            }
            Patience::Short => {
                "    timeouts: { request_head: 3s, idle: 10s, request_body: 5s, detect: 2s, \
                 filter: 4s, response_write: 8s, tunnel_idle: 20s }\n"
            }
        };
    }

    /// Limits of HTTP/2 connections: often the defaults, and else rather small.
    fn http2(&mut self, text: &mut String) {
        let random = &mut self.random;
        if random.chance(500) {
            return;
        }
        let streams = random.between(1, 8);
        let window = random.between(1, 80);
        // Where a connection's window is smaller than its streams', a body that waits for a connection
        // to its service holds up a tunnel which has that connection, until a timeout ends one of
        // them (seed 205583). Where timeouts are long nothing would end it, so there the windows
        // add up, as by default.
        let all = match self.patience {
            Patience::Long => (streams * window).max(64),
            Patience::Short => 64,
        };
        let table = *random.pick(&["0B", "100B", "4KiB", "64KiB"]);
        let _ = write!(
            text,
            "    http2: {{ streams_max: {streams}, stream_window_max: {window}KiB, \
             connection_window_max: {all}KiB, header_table_max: {table}"
        );
        *text += match (self.patience, random.chance(300)) {
            (Patience::Short, true) => ", ping: { interval: 1s, timeout: 3s } }\n",
            (Patience::Long, true) => ", ping: { interval: 1s, timeout: 1h } }\n",
            (_, false) => " }\n",
        };
    }

    /// Endpoints of the cluster with this number.
    fn endpoints(&mut self, number: usize) -> String {
        let first = self.random.below(u64::from(ENDPOINTS));
        let mut endpoints = String::new();
        for place in 0..ENDPOINTS {
            if u64::from(place) == first || self.random.chance(600) {
                let weight = self.random.between(1, 3);
                let address = endpoint(number, place);
                let (priority, version) = (self.random.below(2), self.random.below(2));
                let mut hosts = self.random.split("host", place.into());
                let host = match hosts.chance(800) {
                    true => format!("host: {}, ", host_of(address)),
                    false => String::new(),
                };
                let _ = writeln!(
                    endpoints,
                    "      - {{ address: {address}, {host}weight: {weight}, priority: {priority}, \
                     locality: eu/{}, metadata: {{ version: v{version} }} }}",
                    self.localities.pick(&["a", "b"]),
                );
            }
        }
        // Above a priority that has endpoints, none has to be empty.
        if !endpoints.contains("priority: 0") {
            endpoints = endpoints.replace("priority: 1", "priority: 0");
        }
        endpoints
    }

    pub(super) fn cluster(&mut self, name: &str, number: usize, text: &mut String) {
        let _ = write!(text, "  - name: {name}\n    endpoints:\n");
        *text += &self.endpoints(number);
        let balance = *self.random.pick(&[
            "round_robin",
            "random",
            "least_request",
            "peak_ewma",
            "maglev",
            "{ maglev: { table: 251, load_max: 110 } }",
            "ring_hash",
        ]);
        let _ = writeln!(text, "    balance: {balance}");
        if !balance.contains("hash") && !balance.contains("maglev") && self.random.chance(300) {
            *text += "    slow_start: { window: 3s }\n";
        }
        if !balance.contains("hash") && !balance.contains("maglev") && self.localities.chance(400) {
            let rule = self.localities.pick(&[
                "{ weights: { eu/a: 3, eu/b: 1 } }",
                "{ zone_aware: { size_min: 2 } }",
                "{ zone_aware: { size_min: 1, percent: 50, share: 80 } }",
            ]);
            let _ = writeln!(text, "    localities: {rule}");
        }
        if self.random.chance(400) {
            *text += "    subsets: { by: [[version]], fallback: any }\n";
        }
        if self.has_retries && self.random.chance(500) {
            let share = self.random.below(101);
            let _ = writeln!(text, "    retry_budget: {{ share: {share}, at_least: 1 }}");
        }
        if self.has_outliers && self.random.chance(700) {
            self.outlier(text);
        }
        self.checks(text);
        // From a generator of its own, so that seeds of before mean what they did.
        let mut bounds = self.random.split("requests", 0);
        if self.patience == Patience::Short && bounds.chance(300) {
            let _ = writeln!(text, "    requests_max: {}", bounds.between(1, 12));
        }
        let mut adaptive = self.random.split("adaptive", 0);
        if self.patience == Patience::Short && adaptive.chance(200) {
            let (max, requests) = (adaptive.between(3, 12), adaptive.between(1, 8));
            let _ = writeln!(
                text,
                "    adaptive_concurrency: {{ concurrency_max: {max}, update_interval: 5ms, min_rtt: {{ interval: 500ms, requests: {requests} }} }}"
            );
        }
        let mut of_each = self.random.split("of_each", 0);
        if of_each.chance(300) {
            let max = of_each.between(1, 4);
            let _ = writeln!(text, "    connections_per_endpoint_max: {max}");
        }
        let connections_max = self.random.between(1, 12);
        let _ = write!(text, "    connections_max: {connections_max}\n    pending_max: 1000\n");
        if self.priorities.chance(600) {
            let connections = self.priorities.between(1, 6);
            let _ = write!(
                text,
                "    high_priority: {{ connections_max: {connections}, pending_max: 1000"
            );
            if self.patience == Patience::Short && self.priorities.chance(300) {
                let _ = write!(text, ", requests_max: {}", self.priorities.between(1, 12));
            }
            *text += " }\n";
        }
        let mut preconnects = self.random.split("preconnects", 0);
        let preconnect = preconnects.chance(300).then(|| *preconnects.pick(&["1.2", "1.5", "3"]));
        // A transport of its own, if all in plaintext: connections to these endpoints are none to the others.
        let mut transports = self.random.split("transports", 0);
        let transport = transports.chance(300).then(|| transports.below(2));
        let mut ages = self.random.split("ages", 0);
        if ages.chance(300) {
            let requests = ages.between(1, 20);
            let _ = writeln!(text, "    requests_per_connection_max: {requests}");
        }
        self.cluster_timeouts(text);
        if self.speak_http2.get(number).is_some_and(|speaks| *speaks) {
            *text += "    protocol: http2\n";
            self.http2(text);
        } else if self.random.chance(150) {
            *text += "    proxy_protocol: v1\n";
            return;
        }
        if let Some(preconnect) = preconnect {
            let _ = writeln!(text, "    preconnect: {preconnect}");
        }
        if let Some(version) = transport {
            let _ = writeln!(
                text,
                "    transports: [{{ name: other, match: {{ version: v{version} }} }}]"
            );
        }
    }

    fn cluster_timeouts(&self, text: &mut String) {
        *text += match self.patience {
            Patience::Long => {
                "    connect_timeout: 1h\n    timeouts: { pending: 1h, response_head: 1h, \
                 response_body: 1h, request_write: 1h, stall: none, connection_age: 7s }\n"
            }
            Patience::Short => {
                "    connect_timeout: 1s\n    timeouts: { pending: 4s, response_head: 6s, \
                 response_body: 5s, request_write: 5s, stall: 2s, idle: 8s }\n"
            }
        };
    }

    fn checks(&mut self, text: &mut String) {
        let Some(random) = &mut self.checks else { return };
        if !random.chance(700) {
            return;
        }
        let probe = match random.chance(700) {
            true => "http: { path: /check }",
            false => "tcp: {}",
        };
        let reuse = random.chance(700);
        let interval = random.between(100, 2_000);
        let timeout = random.between(20, 1_000);
        let (healthy, unhealthy) = (random.between(1, 3), random.between(1, 3));
        let _ = writeln!(
            text,
            "    checks:\n      - {{ {probe}, interval: {interval}ms, interval_quiet: 2s, timeout: {timeout}ms, \
             healthy: {healthy}, unhealthy: {unhealthy}, reuse: {reuse} }}"
        );
        let mut random = random.split("warming", 0);
        if random.chance(400) {
            let wait = random.between(1, 3_000);
            let _ = writeln!(text, "    initial_check_timeout: {wait}ms");
        }
    }

    fn outlier(&mut self, text: &mut String) {
        let errors = self.random.between(1, 4);
        let share = self.random.below(101);
        let base = self.random.between(10, 3_000);
        // Without panic, there may be no endpoint left for a request.
        let panic = self.random.between(1, 100);
        let _ = write!(
            text,
            "    panic: {panic}\n    outlier:\n      errors_5xx: {errors}\n      interval: 500ms\n      \
             ejection: {{ base: {base}ms, max: 5s, share_max: {share} }}\n"
        );
        if self.random.chance(300) {
            *text += "      errors_local: 2\n";
        }
        if self.random.chance(300) {
            *text += "      errors_gateway: 2\n";
        }
        if self.random.chance(300) {
            *text += "      failure_percentage: { threshold: 50, endpoints: 1, requests: 2 }\n";
        }
        if self.random.chance(300) {
            *text += "      success_rate: { stdev: 0.5, endpoints: 2, requests: 2 }\n";
        }
    }
}
