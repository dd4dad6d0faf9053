//! What a process starts with, and keeps until it ends.

use std::path::Path as FilePath;
use std::sync::Arc;

use crate::address::UNIX_PATH_BYTES_MAX;
use crate::file;
use crate::findings::{Findings, Problem};
use crate::hosts::Host;
use crate::sections::context::Context;
use crate::snapshot::{Address, HandoverOptions, StartupOptions, StateFolder};
use crate::text::tree::Site;

/// What the process started with stays; a file that says something else is warned about.
pub(crate) fn startup<F>(
    file: &file::File,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> StartupOptions {
    let options = file.workers.options();
    let admin = file.admin.as_ref();
    let asked = StartupOptions {
        admin: admin.and_then(|admin| admin.address.clone()),
        admin_mode: admin.and_then(|admin| admin.mode),
        admin_hosts: admin_hosts(file, site, context.findings),
        metrics: admin.and_then(|admin| admin.metrics.clone()),
        workers: match options.count {
            file::WorkerCount::Auto(_) => None,
            file::WorkerCount::Exactly(count) => Some(count),
        },
        pins_workers: options.pin,
        handover: handover(&file.handover, &site.key("handover"), context),
        state: file.state.as_ref().map(|state| state_folder(state, &site.key("state"), context)),
    };
    let Some(former) = context.former else { return asked };
    let mut warn = |site: &Site<'_>| {
        let rule = "a change of this requires a restart or an upgrade";
        let problem = Problem::new(rule, "run `strait upgrade`, or restart the process");
        site.warning(context.findings, problem);
    };
    if asked.admin != former.startup.admin {
        warn(&site.key("admin").key("address"));
    }
    if asked.admin_mode != former.startup.admin_mode {
        warn(&site.key("admin").key("mode"));
    }
    if asked.admin_hosts != former.startup.admin_hosts {
        warn(&site.key("admin").key("hosts"));
    }
    if asked.metrics != former.startup.metrics {
        warn(&site.key("admin").key("metrics"));
    }
    let is_elsewhere = asked.handover.socket != former.startup.handover.socket;
    if !is_elsewhere && asked.handover != former.startup.handover {
        warn(&site.key("handover"));
    }
    if asked.state != former.startup.state {
        warn(&site.key("state"));
    }
    if (asked.workers, asked.pins_workers) != (former.startup.workers, former.startup.pins_workers)
    {
        warn(&site.key("workers"));
    }
    if is_elsewhere {
        let rule =
            "a change of this requires a restart: an upgrade does not find the process there";
        let problem = Problem::new(rule, "restart the process");
        site.key("handover").key("socket").warning(context.findings, problem);
    }
    former.startup.clone()
}

/// Permissions stand where there is no file.
pub(crate) fn refuse_mode(site: &Site<'_>, findings: &mut Findings<'_>) {
    let rule = "permissions are those of the file of a unix socket";
    site.error(findings, Problem::new(rule, "remove this, or listen on `unix:/run/…`"));
}

pub(crate) fn handover<F>(
    file: &file::Handover,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> HandoverOptions {
    if check_handover_socket(file, site, context.findings)
        && let Some(path) = file.socket.as_deref()
    {
        context.files.warn_of_handover_folder(
            (path, &file.users),
            &site.key("socket"),
            context.findings,
        );
    }
    file.into()
}

/// Whether the path of the socket for handovers, if there is one, is a whole one, and fits the address of a socket.
pub(crate) fn check_handover_socket(
    file: &file::Handover,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> bool {
    let Some(path) = file.socket.as_deref() else { return true };
    let problem = if !path.starts_with('/') {
        let hint = "write the whole path, such as /run/strait/handover/strait.sock";
        Problem::new("the socket's path begins with /", hint)
    } else if path.len() > UNIX_PATH_BYTES_MAX {
        let rule = format!("the path of a socket has at most {UNIX_PATH_BYTES_MAX} bytes");
        Problem::new(rule, "choose a folder with a shorter path, such as /run/strait/handover")
    } else {
        return true;
    };
    site.key("socket").error(findings, problem);
    false
}

impl From<&file::Handover> for HandoverOptions {
    fn from(file: &file::Handover) -> Self {
        Self {
            socket: file.socket.as_deref().map(|path| FilePath::new(path).into()),
            timeout: file.timeout.into(),
            probation: file.probation.0,
            users: file.users.as_slice().into(),
            fd_store: file.fd_store,
        }
    }
}

/// The folder for what sources gave last, which must not depend on where the process was started.
pub(crate) fn state_folder<F>(
    file: &file::State,
    site: &Site<'_>,
    context: &mut Context<'_, '_, F>,
) -> StateFolder {
    let file::StateOptions { folder, keys } = file.options();
    let site = match file {
        file::State::Folder(_) => site,
        file::State::Options(_) => &site.key("folder"),
    };
    if folder.starts_with('/') {
        context.files.warn_of_state_folder(&folder, site, context.findings);
    } else {
        let problem = Problem::new(
            "the folder's path begins with /",
            "write the whole path, such as /var/lib/strait",
        );
        site.error(context.findings, problem);
    }
    StateFolder { path: FilePath::new(&folder).into(), keeps_keys: keys }
}

/// The names of the admin interface. Each is a whole one: a pattern would let in names that others
/// can make.
pub(crate) fn admin_hosts(
    file: &file::File,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Arc<[Box<str>]> {
    let Some(admin) = &file.admin else { return Arc::new([]) };
    let site = site.key("admin");
    if admin.address.is_none() && admin.metrics.is_none() && !site.is_cut("address") {
        let problem = Problem::new(
            "an admin interface without an address serves nothing",
            "add `address: 127.0.0.1:9901`, or `metrics: 127.0.0.1:9902`",
        );
        site.error(findings, problem);
    }
    if let Some(Address::Tcp(address)) = &admin.address
        && !address.ip().to_canonical().is_loopback()
    {
        let port = address.port();
        let problem = Problem::new(
            "the admin interface has no authentication: what reaches this address can read the \
             configuration and drain the process",
            format!(
                "write 127.0.0.1:{port} or a unix socket, and `metrics` with an address for what scrapes"
            ),
        );
        site.key("address").warning(findings, problem);
    }
    let addresses = admin.address.iter().chain(&admin.metrics);
    if admin.mode.is_some() && addresses.clone().all(|it| matches!(it, Address::Tcp(_))) {
        refuse_mode(&site.key("mode"), findings);
    }
    let mut names = Vec::with_capacity(admin.hosts.len());
    for (name, site) in admin.hosts.iter().zip(site.key("hosts").items()) {
        match name.parse() {
            Ok(Host::Exact(name)) => names.push(Box::from(&*name)),
            Ok(Host::Suffix(_) | Host::Prefix(_) | Host::Any) => {
                let hint = "write each name, such as admin.example.com";
                site.error(findings, Problem::new("names of the admin interface are whole", hint));
            }
            Err(problem) => site.error(findings, problem),
        }
    }
    names.into()
}
