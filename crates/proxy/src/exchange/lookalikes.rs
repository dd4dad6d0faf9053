//! Fields of a request that a service could take for a proxy's: `x-forwarded-*` of a client,
//! and names with `_`, which many services take for `-`.
//!
//! Looked at before Strait sets fields of its own, and only where a head has such a name at all. Trailers
//! follow the same rule: a service may read them as fields of the head (RFC 9110, section 6.5.1).

use config::snapshot::{HttpOptions, Underscores};
use telemetry::cause::Cause;
use telemetry::events::{HeaderDrop, HeadersDropped, LabelId};
use wire::h1::kept_trailers;
use wire::head::lookalike::{has_underscore, is_forwarded, known_twin};
use wire::head::{Known, RequestHead};

use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::keys::{ExchangeKey, label};

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

/// As [`screen`], of the trailer section of a request. What goes on is in `room` if fields were dropped.
fn screen_trailers<'s>(
    section: &'s [u8],
    room: &'s mut Vec<u8>,
    options: &HttpOptions,
) -> (&'s [u8], Result<Dropped, Cause>) {
    let mut dropped = Dropped::default();
    let mut is_refused = false;
    let kept = kept_trailers(section, room, |name, known| {
        let is_named = known == Known::XRequestId && options.trusted_hops == 0;
        let reason = is_named.then_some(HeaderDrop::Forwarded);
        let reason = reason.or_else(|| reason_to_drop(name, options));
        is_refused |= options.underscores == Underscores::Refuse && has_underscore(name);
        if let Some(count) = reason.and_then(|reason| dropped.get_mut(reason as usize)) {
            *count += 1;
        }
        reason.is_none()
    });
    (kept, if is_refused { Err(Cause::RequestHeaderUnderscore) } else { Ok(dropped) })
}

impl Cx {
    /// Counts the fields that were dropped of a request to this listener.
    pub(crate) fn count_dropped(&mut self, listener: LabelId, dropped: Dropped) {
        let reasons = [HeaderDrop::Forwarded, HeaderDrop::Underscore];
        for (reason, count) in reasons.into_iter().zip(dropped).filter(|(_, count)| *count > 0) {
            self.emitter.headers_dropped(&HeadersDropped { listener, reason, count });
        }
    }
}

impl Exchanges {
    /// The trailers of a request that the listener lets through, in `room` if it drops some.
    ///
    /// # Errors
    ///
    /// [`Cause::RequestHeaderUnderscore`], if it refuses such requests.
    pub(crate) fn screen_trailers<'s>(
        &self,
        key: ExchangeKey,
        section: &'s [u8],
        room: &'s mut Vec<u8>,
        cx: &mut Cx,
    ) -> Result<&'s [u8], Cause> {
        if section.is_empty() {
            return Ok(section);
        }
        let Some(exchange) = self.get(key) else { return Ok(section) };
        let listener = exchange.listener();
        let (kept, dropped) = screen_trailers(section, room, &listener.http);
        let listener = label(listener.id.0);
        cx.count_dropped(listener, dropped?);
        Ok(kept)
    }
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
