//! Fields of a request that a service could read as said by somebody else: `x-forwarded-*` of a client,
//! and names with `_`, which many services take for `-`.
//!
//! Looked at before Strait sets fields of its own, and only where a head has such a name at all.

use config::snapshot::{HttpOptions, Underscores};
use telemetry::cause::Cause;
use telemetry::events::HeaderDrop;
use wire::head::lookalike::{has_underscore, is_forwarded, known_twin};
use wire::head::{Known, RequestHead};

/// How many fields were dropped, by [`HeaderDrop`].
pub(crate) type Dropped = [u64; HeaderDrop::NAMES.len()];

/// Drops what the listener does not let through.
///
/// # Errors
///
/// [`Cause::RequestHeaderUnderscore`], if it refuses such requests.
pub(crate) fn screen(head: &mut RequestHead<'_>, options: &HttpOptions) -> Result<Dropped, Cause> {
    let mut dropped = Dropped::default();
    if !head.has_unusual_names() {
        return Ok(dropped);
    }
    let mut is_refused = false;
    head.remove_others(|name| {
        let reason = reason_to_drop(name, options);
        is_refused |= options.underscores == Underscores::Refuse && has_underscore(name);
        if let Some(count) = reason.and_then(|reason| dropped.get_mut(reason as usize)) {
            *count += 1;
        }
        reason.is_some()
    });
    if is_refused { Err(Cause::RequestHeaderUnderscore) } else { Ok(dropped) }
}

/// Why a field of this name, which is none of [`Known`], goes no further.
fn reason_to_drop(name: &[u8], options: &HttpOptions) -> Option<HeaderDrop> {
    let is_forwarded = is_forwarded(name);
    let is_allowed =
        || options.forwarded_allowed.iter().any(|allowed| name.eq_ignore_ascii_case(allowed));
    if is_forwarded && options.trusted_hops == 0 && !is_allowed() {
        return Some(HeaderDrop::Forwarded);
    }
    if !has_underscore(name) {
        return None;
    }
    let is_dropped = match options.underscores {
        Underscores::Drop => true,
        Underscores::DropReserved => is_forwarded || is_reserved(name),
        Underscores::Refuse | Underscores::Pass => false,
    };
    is_dropped.then_some(HeaderDrop::Underscore)
}

/// Whether the name is, with `-` for `_`, one that Strait reads or sets.
fn is_reserved(name: &[u8]) -> bool {
    known_twin(name) != Known::Other || name.eq_ignore_ascii_case(b"early_data")
}
