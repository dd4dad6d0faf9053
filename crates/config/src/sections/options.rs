//! Options that stand at several places, and those of the process that a reload changes.

use std::time::Duration;

use crate::file::{self, OrNone, Timeout};
use crate::findings::{Findings, Problem};
use crate::memory::MemoryMax;
use crate::snapshot::{Http2Options, Limits, Ping, RpcOptions};
use crate::text::tree::Site;
use crate::units::Size;

pub(crate) fn limits(file: &file::Limits) -> Limits {
    Limits {
        connections_max: file.connections_max,
        handshakes_max: file.handshakes_max,
        discard_bytes_max: file.discard_max.0,
        mirrored_bytes_max: file.mirrored_max.0,
        memory_max: match file.memory_max {
            None => MemoryMax::OfControlGroup,
            Some(OrNone::None) => MemoryMax::Unbounded,
            Some(OrNone::Some(Size(bytes))) => MemoryMax::Bytes(bytes),
        },
        linger_timeout: file.linger_timeout.0,
        linger_max: file.linger_max.0,
        drain_delay: file.drain_delay.0,
        drain_timeout: file.drain_timeout.into(),
    }
}

/// Seconds that the kernel counts in whole.
pub(crate) fn keepalive(
    file: Option<&file::Keepalive>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<crate::snapshot::Keepalive> {
    let file = file?;
    let site = site.key("keepalive");
    for (key, period) in [("idle", file.idle), ("interval", file.interval)] {
        if period.0.subsec_nanos() != 0 {
            let hint = format!("write {}s", period.0.as_secs());
            site.key(key).error(findings, Problem::new("keepalive counts whole seconds", hint));
        }
    }
    Some(crate::snapshot::Keepalive {
        idle: file.idle.0,
        interval: file.interval.0,
        probes: file.probes,
    })
}

pub(crate) fn http2(
    file: &file::Http2,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Http2Options {
    check_windows(file, site, findings);
    // The bounds of all sizes, in the schema, are far below 4 GiB.
    let bytes = |size: Size| u32::try_from(size.0).unwrap_or(u32::MAX);
    Http2Options {
        streams_max: file.streams_max,
        stream_window_bytes_max: bytes(file.stream_window_max),
        connection_window_bytes_max: bytes(file.connection_window_max),
        header_table_bytes_max: bytes(file.header_table_max),
        frame_bytes_max: bytes(file.frame_max),
        work_max: file.work_max,
        work_per_second: file.work_per_second,
        early_reset: file.early_reset.0,
        ping: file.ping.map(|ping| Ping { interval: ping.interval.0, timeout: ping.timeout.0 }),
    }
}

pub(crate) fn rpc(file: file::Rpc) -> RpcOptions {
    RpcOptions {
        requests_max: file.requests_max,
        head_bytes_max: u32::try_from(file.head_max.0).unwrap_or(u32::MAX),
        body_bytes_max: file.body_max.0,
    }
}

/// Streams that stand still should leave the others some of the connection's window.
pub(crate) fn check_windows(file: &file::Http2, site: &Site<'_>, findings: &mut Findings<'_>) {
    let (streams, window, connection) =
        (file.streams_max, file.stream_window_max, file.connection_window_max);
    let all = Size(u64::from(streams.get()).saturating_mul(window.0));
    if all <= connection {
        return;
    }
    let rule = format!(
        "{connection} is less than {streams} streams of {window}, so that some of them can hold up \
         the others"
    );
    let less = "less in `streams_max` or `stream_window_max`";
    let hint = match all <= WINDOW_MAX {
        true => format!("write {all}, or {less}"),
        false => format!("write {less}"),
    };
    site.key("connection_window_max").warning(findings, Problem::new(rule, hint));
}

/// What a window can be, as the schema says.
const WINDOW_MAX: Size = Size(1 << 30);

pub(crate) fn or_none(timeout: OrNone<Timeout>) -> Option<Duration> {
    match timeout {
        OrNone::None => None,
        OrNone::Some(timeout) => Some(timeout.into()),
    }
}
