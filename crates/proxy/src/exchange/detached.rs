//! What an exchange without a downstream is: a copy of a request, a health check, or an attempt beside another. And the room
//! that copies may take.

use serde::{Deserialize, Serialize};
use telemetry::events::MirrorDrop;

use crate::cx::Cx;
use crate::exchange::check_run::CheckRun;
use crate::keys::ExchangeKey;

/// What a copy counts as beside its request's bytes: the exchange itself and a small buffer.
const COPY_BYTES: u64 = 2_048;

/// What an exchange is that has no downstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Detached {
    /// What it counts as towards the bound on copies.
    pub(crate) bytes: u64,
    /// Why it is not sent, if it is not.
    #[serde(skip)]
    pub(crate) dropped: Option<MirrorDrop>,
    /// What the frame of a call looked like that it is a copy of; 0 of a request of HTTP.
    pub(crate) form: u64,
    /// What it is if it is no copy. A check never moves.
    #[serde(skip)]
    pub(crate) check: Option<Box<CheckRun>>,
    /// The exchange whose earlier attempt it is. It never moves, either.
    #[serde(skip)]
    pub(crate) hedge_of: Option<ExchangeKey>,
}

/// The part of a worker's room for copies that one of them may have.
const COPY_DIVISOR: u64 = 4;

impl Detached {
    const NONE: Self = Self { bytes: 0, dropped: None, form: 0, check: None, hedge_of: None };

    /// A copy without a byte of its request, of which the frame looked like this.
    pub(crate) fn begin(form: u64, cx: &mut Cx) -> Option<Box<Self>> {
        let mut detached = Box::new(Self { form, ..Self::NONE });
        detached.hold(COPY_BYTES, cx).then_some(detached)
    }

    /// A health check, which has no room to ask for.
    pub(crate) fn of_check(run: CheckRun) -> Box<Self> {
        Box::new(Self { check: Some(Box::new(run)), ..Self::NONE })
    }

    /// An attempt of this exchange, beside the one that it is at.
    pub(crate) fn of_hedge(exchange: ExchangeKey) -> Box<Self> {
        Box::new(Self { hedge_of: Some(exchange), ..Self::NONE })
    }

    /// Counts more bytes of a copy, if there is room for them.
    pub(crate) fn hold(&mut self, bytes: u64, cx: &mut Cx) -> bool {
        let bytes_max = cx.share.of_bytes(cx.snapshot.limits.mirrored_bytes_max);
        let own = self.bytes.saturating_add(bytes);
        let all = cx.copied_bytes.saturating_add(bytes);
        if all > bytes_max || own > bytes_max / COPY_DIVISOR {
            return false;
        }
        (self.bytes, cx.copied_bytes) = (own, all);
        true
    }

    /// It is over, and what it held is free.
    pub(crate) const fn let_go(&self, cx: &mut Cx) {
        cx.copied_bytes = cx.copied_bytes.saturating_sub(self.bytes);
    }
}
