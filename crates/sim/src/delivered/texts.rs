//! The texts of what a source delivers.

use super::{Resource, Source, Version};
use crate::versions::{LISTENER_FIELD, ROUTES_FIELD};

/// The listener's address.
pub(crate) const FLEET: &str = "10.0.0.1:85";

impl Source {
    fn new_version(&mut self, text: String, names: Vec<Resource>) -> Version {
        self.numbers += 1;
        let number = self.numbers.to_string();
        Version { number: self.numbers, text: text.replace("NUMBER", &number), names }
    }

    /// A version that goes with what else there is.
    pub(super) fn version(&mut self, resource: Resource) -> Version {
        let (text, names) = match resource {
            Resource::Listener => self.listener(),
            Resource::Routes => (self.routes_text(), Vec::new()),
            Resource::OtherRoutes => {
                let text = "{ name: others, virtual_hosts: [{ name: one, hosts: [others.example], rules: \
                            [{ match: { prefix: / }, respond: { status: 200, body: 'NUMBER' } }] }] }";
                (text.to_owned(), Vec::new())
            }
            Resource::Secret => (secret(self.random.pick(&SITES)), Vec::new()),
            Resource::Cluster => (self.cluster(), vec![Resource::Assignment]),
            Resource::Assignment => (self.assignment(), Vec::new()),
        };
        self.new_version(text, names)
    }

    /// A version that something is wrong with.
    pub(super) fn wrong(&mut self, resource: Resource) -> Version {
        let text = match resource {
            Resource::Listener => "{ name: fleet, address: 10.0.0.1, routes: paths }",
            Resource::Routes => {
                "{ name: paths, virtual_hosts: [{ name: all, rules: [{ match: { prefix: x }, cluster: fleet }] }] }"
            }
            Resource::OtherRoutes => "{ name: others, virtual_hosts: [{ name: a/b, rules: [] }] }",
            Resource::Secret => "{ name: site, key: x }",
            Resource::Cluster => "{ name: fleet, connections_max: 0 }",
            Resource::Assignment => {
                "{ name: fleet, endpoints: ['10.1.0.0:9000', '10.1.0.0:9000'] }"
            }
        };
        self.new_version(text.to_owned(), Vec::new())
    }

    fn listener(&mut self) -> (String, Vec<Resource>) {
        let mut names = vec![Resource::Routes];
        let mut routes = "paths";
        if self.random.chance(300) {
            names.push(Resource::OtherRoutes);
            routes = "[paths, others]";
        }
        let timeouts = match self.is_patient {
            true => {
                "{ request_head: 1h, idle: 1h, request_body: 1h, detect: 1h, filter: 1h, response_write: 1h, \
                 tunnel_idle: 1h }"
            }
            false => {
                "{ request_head: 3s, idle: 10s, request_body: 5s, detect: 2s, filter: 4s, response_write: 8s, \
                 tunnel_idle: 20s }"
            }
        };
        let mut text = format!(
            "name: fleet\naddress: {FLEET}\nroutes: {routes}\ntimeouts: {timeouts}\n\
             filters:\n- stamp: {{ field: {LISTENER_FIELD}, value: 'NUMBER' }}\n"
        );
        if self.random.chance(300) {
            text += "- ask: { topic: sim }\n";
        }
        if self.random.chance(500) {
            // Handshakes are left out here: no connection meets this chain.
            text += "chains:\n- name: secure\n  match: { destination_ports: [1] }\n  routes: paths\n  \
                     tls: { certificates: [{ chain: 'secret:site', key: 'secret:site' }] }\n";
            names.push(Resource::Secret);
        }
        (text, names)
    }

    fn routes_text(&mut self) -> String {
        let timeout = if self.is_patient { "1h" } else { "30s" };
        let mut text = format!(
            "name: paths\nvirtual_hosts:\n- name: all\n  headers: {{ response: {{ set: {{ {ROUTES_FIELD}: 'NUMBER' }} }} }}\n  \
             rules:\n"
        );
        for spare in 0..self.random.below(3) {
            text += &format!(
                "  - {{ match: {{ prefix: /spare{spare}/ }}, respond: {{ status: 204 }} }}\n"
            );
        }
        for (path, cluster) in [("alpha", "fleet"), ("beta", "beta")] {
            text += &format!(
                "  - {{ match: {{ prefix: /{path}/ }}, cluster: {cluster}, timeout: {timeout} }}\n"
            );
        }
        text
    }

    fn cluster(&mut self) -> String {
        let timeouts = match self.is_patient {
            true => {
                "connect_timeout: 1h\ntimeouts: { pending: 1h, response_head: 1h, response_body: 1h, \
                 request_write: 1h, stall: none }\n"
            }
            false => {
                "connect_timeout: 1s\ntimeouts: { pending: 4s, response_head: 6s, response_body: 5s, \
                 request_write: 5s, stall: 2s, idle: 8s }\n"
            }
        };
        let protocol = if self.speaks_http2 { "protocol: http2\n" } else { "" };
        let connections = self.random.between(1, 12);
        let balance = self.random.pick(&["round_robin", "random", "least_request"]);
        format!(
            "name: fleet\nbalance: {balance}\nconnections_max: {connections}\npending_max: 1000\n{protocol}{timeouts}"
        )
    }

    fn assignment(&mut self) -> String {
        let mut text = "name: fleet\nendpoints:\n".to_owned();
        let first = self.random.length_below(self.endpoints.len());
        for (place, address) in self.endpoints.iter().enumerate() {
            if place == first || self.random.chance(600) {
                let weight = self.random.between(1, 3);
                text += &format!("- {{ address: {address}, weight: {weight} }}\n");
            }
        }
        text
    }
}

/// Certificates with their keys.
const SITES: [[&str; 2]; 2] = [
    [include_str!("site-1.pem"), include_str!("site-1.key")],
    [include_str!("site-2.pem"), include_str!("site-2.key")],
];

fn secret([chain, key]: &[&str; 2]) -> String {
    let block = |pem: &str| pem.lines().map(|line| format!("  {line}\n")).collect::<String>();
    format!("name: site\nchain: |\n{}key: |\n{}", block(chain), block(key))
}
