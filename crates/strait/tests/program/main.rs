//! The program as its users meet it: command line, signals, files and sockets.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the kit is test code, outside of what clippy takes for tests, and a skip is printed"
)]

mod admin;
mod breakers;
mod checks;
mod command_line;
mod demo;
mod descriptors;
#[path = "../../../control/tests/dns/server.rs"]
mod dns_server;
mod drains;
mod endpoints;
mod explain_live;
mod handover;
mod handover_back;
mod handover_command;
mod handover_counts;
mod handover_early_data;
mod handover_files;
mod handover_giver;
mod handover_known;
mod handover_listing;
mod handover_refusals;
mod handover_secrets;
mod handover_signals;
mod handover_stopped;
mod init;
mod kit;
mod life;
mod logs;
mod memory;
mod moves;
mod names;
mod outliers;
mod reload;
mod rustls_client;
mod service_manager;
mod stalls;
mod state;
mod stopped_worker;
mod stored;
mod stored_connections;
mod tls;
mod tls_client;
mod top;
mod troubleshooting;
