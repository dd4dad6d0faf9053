//! `preconnect` of a cluster: connections that are opened before a request needs them.

use crate::decimal::Decimal;

/// Connections that are to be open to an endpoint for each of its active requests, more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preconnect {
    /// That many, times 1,000.
    thousandths: u32,
}

impl Preconnect {
    /// The most that a configuration may ask for, times 1,000.
    pub(crate) const THOUSANDTHS_MAX: u32 = 3_000;

    /// Of a ratio; none of 1 or less, which is what happens without it.
    pub(crate) fn new(ratio: Decimal) -> Option<Self> {
        let thousandths = ratio.thousandths();
        (thousandths > 1_000).then_some(Self { thousandths })
    }

    /// For how many requests there is to be room while this many are active, rounded up.
    #[must_use]
    pub fn room_for(self, requests: u32) -> u32 {
        let room = (u64::from(requests) * u64::from(self.thousandths)).div_ceil(1_000);
        u32::try_from(room).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_more_than_what_is_active() {
        let of = |ratio: &str, requests| {
            Preconnect::new(ratio.parse().unwrap()).map(|it| it.room_for(requests))
        };
        for (ratio, requests, room) in [
            ("1.5", 0, Some(0)),
            ("1.5", 1, Some(2)),
            ("1.5", 2, Some(3)),
            ("1.1", 10, Some(11)),
            ("1.01", 10, Some(11)),
            ("3", 5, Some(15)),
            ("3", u32::MAX, Some(u32::MAX)),
            ("1", 5, None),
        ] {
            assert_eq!(of(ratio, requests), room, "{ratio} of {requests}");
        }
    }
}
