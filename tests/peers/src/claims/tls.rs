//! Strait's TLS with other implementations, on either side.

mod a_client_that_does_not_know_the_authority_refuses;
mod a_hello_of_many_records_is_understood;
mod a_host_of_another_chain_takes_its_own_connection;
mod a_key_that_does_not_fit_changes_nothing;
mod a_ticket_is_no_certificate;
mod aborted_handshakes_leave_nothing;
mod broken_records_end_their_own_connection;
mod certificates_are_replaced_under_load;
mod chromium_is_a_client;
mod clients_without_a_certificate_are_refused;
mod curl_chooses_the_version_of_http;
mod early_data_is_answered_once;
mod early_data_of_any_size_is_taken_or_skipped;
mod either_side_may_update_its_keys;
mod go_is_a_client;
mod go_is_an_upstream;
mod h2load_counts_match;
mod h2spec_passes_every_case;
mod handshakes_may_come_byte_by_byte;
mod haproxy_is_an_upstream;
mod haproxy_stands_in_front;
mod java_is_a_client;
mod keys_are_updated_between_upgrades;
mod large_bodies_are_exact_both_ways;
mod nginx_is_an_upstream;
mod nginx_stands_in_front;
mod old_versions_are_refused;
mod renegotiation_is_refused;
mod silent_connections_leave_room_for_handshakes;
mod slow_handshakes_are_cut_off;
mod sslyze_finds_no_weakness;
mod termination_under_load_loses_nothing;
mod testssl_finds_no_weakness;
mod the_name_picks_the_certificate;
mod the_whole_chain_is_shown;
mod tickets_resume_sessions;
mod tunnels_end_in_good_order;
mod upstreams_that_are_not_trusted_get_nothing;
mod upstreams_that_leave_leave_nothing;

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::claim::Claim;
use crate::lab::Lab;
use crate::openssl::Session;
use crate::pki::Authority;
use crate::process::Finished;
use crate::strait::{Options, Strait};
use crate::wait;

pub(super) const CLAIMS: &[Claim] = &[
    curl_chooses_the_version_of_http::CLAIM,
    large_bodies_are_exact_both_ways::CLAIM,
    the_name_picks_the_certificate::CLAIM,
    a_client_that_does_not_know_the_authority_refuses::CLAIM,
    clients_without_a_certificate_are_refused::CLAIM,
    a_host_of_another_chain_takes_its_own_connection::CLAIM,
    the_whole_chain_is_shown::CLAIM,
    old_versions_are_refused::CLAIM,
    tickets_resume_sessions::CLAIM,
    early_data_is_answered_once::CLAIM,
    early_data_of_any_size_is_taken_or_skipped::CLAIM,
    a_ticket_is_no_certificate::CLAIM,
    renegotiation_is_refused::CLAIM,
    either_side_may_update_its_keys::CLAIM,
    keys_are_updated_between_upgrades::CLAIM,
    a_hello_of_many_records_is_understood::CLAIM,
    testssl_finds_no_weakness::CLAIM,
    sslyze_finds_no_weakness::CLAIM,
    nginx_is_an_upstream::CLAIM,
    nginx_stands_in_front::CLAIM,
    haproxy_is_an_upstream::CLAIM,
    haproxy_stands_in_front::CLAIM,
    go_is_a_client::CLAIM,
    go_is_an_upstream::CLAIM,
    java_is_a_client::CLAIM,
    chromium_is_a_client::CLAIM,
    upstreams_that_are_not_trusted_get_nothing::CLAIM,
    h2spec_passes_every_case::CLAIM,
    h2load_counts_match::CLAIM,
    tunnels_end_in_good_order::CLAIM,
    handshakes_may_come_byte_by_byte::CLAIM,
    slow_handshakes_are_cut_off::CLAIM,
    silent_connections_leave_room_for_handshakes::CLAIM,
    broken_records_end_their_own_connection::CLAIM,
    aborted_handshakes_leave_nothing::CLAIM,
    upstreams_that_leave_leave_nothing::CLAIM,
    termination_under_load_loses_nothing::CLAIM,
    certificates_are_replaced_under_load::CLAIM,
    a_key_that_does_not_fit_changes_nothing::CLAIM,
];

/// The name that clients ask for.
pub(super) const NAME: &str = "shop.example";

/// Of a listener: ends TLS with the certificate of [`secured`].
pub(super) const SITE: &str = "tls: { certificates: [{ chain: site.pem, key: site.key }] }";

/// The same for clients with a certificate from the CA `clients` alone.
const MEMBERS: &str = "tls:
  certificates: [{ chain: site.pem, key: site.key }]
  client: { ca: clients.pem }";

/// Versions of HTTP and TLS in pairs, as the access log has them behind their names.
const PAIRS: [(&str, &str); 4] = [("1.1", "1.2"), ("1.1", "1.3"), ("2.0", "1.2"), ("2.0", "1.3")];

/// Options by which clients speak one version of TLS: curl's, then openssl's.
const VERSIONS: [(&[&str], &str); 2] =
    [(&["--tlsv1.2", "--tls-max", "1.2"], "-tls1_2"), (&["--tlsv1.3"], "-tls1_3")];

/// Memory that may be another after an attack: what allocators keep.
const LEFT_BYTES_MAX: u64 = 8 << 20;

/// A Strait in front of `upstream` that is [`NAME`], with a certificate from `ca.pem`.
fn secured(lab: &Lab, upstream: SocketAddr) -> Result<Strait> {
    issue_site(lab)?;
    Strait::forwarding_to(lab, upstream, Options { listener: SITE, ..Options::default() })
}

/// The same with a certificate for each kind of key, and no other setting.
fn secured_with_both_keys(lab: &Lab, upstream: SocketAddr) -> Result<Strait> {
    issue_site(lab)?.issue_for(lab, "site-rsa", NAME, &rcgen::PKCS_RSA_SHA256)?;
    let both = "}, { chain: site-rsa.pem, key: site-rsa.key }]";
    let listener = SITE.replace("}]", both);
    let options = Options { listener: &listener, ..Options::default() };
    Strait::forwarding_to(lab, upstream, options)
}

/// Makes the files that [`SITE`] names, and their authority.
pub(super) fn issue_site(lab: &Lab) -> Result<Authority> {
    let authority = Authority::new(lab, "ca")?;
    authority.issue(lab, "site", NAME)?;
    Ok(authority)
}

/// Of a cluster that is [`NAME`]: it is spoken to in this version of TLS, and shown `strait.pem`.
fn showing_a_certificate(protocol: &str, version: &str) -> String {
    format!(
        "protocol: {protocol}
tls:
  server_name: {NAME}
  ca: ca.pem
  certificate: {{ chain: strait.pem, key: strait.key }}
  max_version: \"{version}\""
    )
}

/// What curl prints of `https://shop.example` and a path, if it gets it.
fn curl(lab: &Lab, server: SocketAddr, arguments: &[&str], path: &str) -> Result<String> {
    run_curl(lab, server, &[&["--cacert", "ca.pem"], arguments].concat(), NAME, path)?.ok()
}

/// Runs curl for a name that it takes to be at `server`.
fn run_curl(
    lab: &Lab,
    server: SocketAddr,
    arguments: &[&str],
    name: &str,
    path: &str,
) -> Result<Finished> {
    let (place, url) = (format!("::{server}"), format!("https://{name}{path}"));
    let fixed = ["--silent", "--show-error", "--max-time", "50", "--connect-to", &place];
    lab.run("curl", &[&fixed[..], arguments, &[&url]].concat())
}

/// Has s_client ask for `/seen` and wait for the end, by which a ticket has come: what it prints.
fn visit(lab: &Lab, server: SocketAddr, options: &[&str]) -> Result<String> {
    let mut session = Session::connect(lab, server, NAME, options)?;
    // A refused client cannot send a request.
    let request = "GET /seen HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n";
    let asked = session.types(request);
    session.ends()?;
    let printed = session.printed();
    asked.or_else(|error| if printed.contains("alert") { Ok(()) } else { Err(error) })?;
    Ok(printed)
}

/// Waits until at least so many lines of the access log are about requests in this pair of
/// versions, from the client the client's certificate is about.
fn are_logged(
    strait: &Strait,
    count: usize,
    (http, tls): (&str, &str),
    client: Option<&str>,
) -> Result<()> {
    let wanted = [
        ("protocol", Some(format!("HTTP/{http}"))),
        ("tls_version", Some(format!("TLSv{tls}"))),
        ("peer_identity", client.map(str::to_owned)),
    ];
    let is_wanted = |line: &Value| {
        wanted.iter().all(|(key, value)| line.get(key).and_then(Value::as_str) == value.as_deref())
    };
    let found = || strait.logged().map(|lines| lines.iter().filter(|line| is_wanted(line)).count());
    wait::until("the lines to be there", wait::SOON, || found().is_ok_and(|found| found >= count))
        .with_context(|| format!("{count} lines with {wanted:?}, not {found:?}", found = found()))
}

/// Waits until these gauges, and those of what connections hold, are at 0.
fn nothing_is_left(strait: &Strait, connections: &[&str]) -> Result<()> {
    for gauge in connections.iter().chain(&["strait_exchanges_active", "strait_buffers_leased"]) {
        wait::until(&format!("{gauge} to be 0"), wait::SOON, || {
            strait.metric(gauge).is_ok_and(|value| value == 0.0)
        })?;
    }
    Ok(())
}
