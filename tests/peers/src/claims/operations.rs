//! What operators of Strait do.

mod a_hundred_handovers_keep_ten_thousand_connections;
mod a_hundred_handovers_lose_nothing;
mod a_hundred_handovers_lose_nothing_between_proxies;
mod a_hundred_handovers_lose_nothing_of_ghz;
mod a_hundred_handovers_lose_nothing_of_grpc;
mod a_hundred_handovers_lose_nothing_of_java;
mod a_kill_at_any_message_loses_nothing;
mod a_wrong_file_changes_nothing;
mod addresses_in_dnsmasq_move_under_load;
mod containers_replace_each_other;
mod handover_load;
mod handovers_under_load_lose_nothing;
mod http2_drains_and_loses_nothing;
mod promtool_accepts_the_metrics;
mod reload_under_load_loses_nothing;
mod requests_in_flight_outlive_the_listener;
mod services_in_unbound_move_under_load;
mod termination_under_load_loses_nothing;
mod the_previous_version_and_this_one_replace_each_other;

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::claim::Claim;
use crate::client;
use crate::lab::Lab;
use crate::process::Process;
use crate::strait::Strait;
use crate::wait;

pub(super) const CLAIMS: &[Claim] = &[
    promtool_accepts_the_metrics::CLAIM,
    reload_under_load_loses_nothing::CLAIM,
    a_wrong_file_changes_nothing::CLAIM,
    addresses_in_dnsmasq_move_under_load::CLAIM,
    services_in_unbound_move_under_load::CLAIM,
    handovers_under_load_lose_nothing::CLAIM,
    a_kill_at_any_message_loses_nothing::CLAIM,
    containers_replace_each_other::CLAIM,
    termination_under_load_loses_nothing::CLAIM,
    http2_drains_and_loses_nothing::CLAIM,
    requests_in_flight_outlive_the_listener::CLAIM,
];

/// They take minutes, or a version that has to be built.
pub(super) const ASKED: &[Claim] = &[
    a_hundred_handovers_keep_ten_thousand_connections::CLAIM,
    a_hundred_handovers_lose_nothing::CLAIM,
    a_hundred_handovers_lose_nothing_between_proxies::CLAIM,
    a_hundred_handovers_lose_nothing_of_ghz::CLAIM,
    a_hundred_handovers_lose_nothing_of_grpc::CLAIM,
    a_hundred_handovers_lose_nothing_of_java::CLAIM,
    the_previous_version_and_this_one_replace_each_other::CLAIM,
];

/// How often [`upgrade_often`] has one process take the place of another.
const HANDOVERS: u32 = 100;

/// Has a hundred processes take each other's place, none of which leaves a connection behind: the running process starts every
/// other one, by `strait upgrade`, and this program starts the others.
fn upgrade_often(lab: &Lab, strait: &Strait) -> Result<()> {
    upgrade_often_and(lab, strait, |_| Ok(()))
}

/// The same, and does this after each handover, whose number it is given.
fn upgrade_often_and(
    lab: &Lab,
    strait: &Strait,
    mut then: impl FnMut(u32) -> Result<()>,
) -> Result<()> {
    let (program, file) = (lab.strait.to_string_lossy(), strait.file().to_string_lossy());
    for number in 1..=HANDOVERS {
        // The last one by the command, which ends once the old process answers no more: it may until then, beside the new one.
        if number % 2 == 1 {
            let arguments = ["run", "--take-over=required", "--config", &file];
            strait.own(Process::start(lab.folder(), &*program, &arguments)?);
            await_take_over(strait.admin_address(), number)?;
        } else {
            let output = lab.run(&program, &["upgrade", "--config", &file])?.ok()?;
            ensure!(output.contains("groups of connections moved, 0 stay and drain"), "{output}");
        }
        then(number).with_context(|| format!("after handover {number}"))?;
    }
    let generation = strait.metric("strait_generation")?;
    ensure!(generation == f64::from(HANDOVERS), "generation {generation}");
    Ok(())
}

/// Waits until the process of this generation has the place of the one before it, with all its connections.
fn await_take_over(admin: SocketAddr, generation: u32) -> Result<()> {
    let page = wait::for_some("the handover", wait::SOON, || {
        let page: Value =
            serde_json::from_str(&client::get(admin, "/handover").ok()?.text()).ok()?;
        let is_new = page.pointer("/generation") == Some(&json!(generation));
        let is_over = page.pointer("/last/result") == Some(&json!("completed"));
        (is_new && is_over).then_some(page)
    })?;
    ensure!(page.pointer("/last/connections_left") == Some(&json!([])), "{page}");
    Ok(())
}

/// The option of the file by which a process is replaced at once.
fn handover(lab: &Lab) -> String {
    let socket = lab.folder().join("handover/strait.sock");
    format!("handover: {{ socket: \"{}\", probation: 0s }}", socket.display())
}

/// Asks `strait` for `url` with h2load, ends it by SIGTERM meanwhile, and finds that what was accepted
/// was answered. `version` is h2load's option for the version of HTTP.
pub(super) fn terminate_under_load(
    lab: &Lab,
    mut strait: Strait,
    version: &str,
    url: &str,
) -> Result<()> {
    let options = [version, "-D", "20", "-c", "16", "-t", "1", url];
    let h2load = Process::start(lab.folder(), "h2load", &options)?;
    wait::until("load", wait::SOON, || {
        strait.metric("strait_exchanges_finished_total").is_ok_and(|count| count > 1000.0)
    })?;
    strait.terminate()?;
    strait.expect_clean_end(wait::SOON)?;
    drop(h2load);
    all_were_served(&strait).context(version.to_owned())
}

/// Every request that Strait saw has a line, none with a cause of its own making.
fn all_were_served(strait: &Strait) -> Result<()> {
    let lines = strait.look_at_log(|line| {
        let status = line.get("status").and_then(Value::as_u64);
        ensure!(status == Some(200) && line.get("cause").is_none(), "{line}");
        Ok(())
    })?;
    ensure!(lines > 1000, "{lines} lines");
    Ok(())
}
