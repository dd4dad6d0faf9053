//! nghttp2's client, which has options for what is allowed and seldom done.

mod frames_may_be_padded_and_continued;
mod small_windows_hold_back_and_lose_nothing;

use crate::claim::Claim;

pub(super) const CLAIMS: &[Claim] =
    &[frames_may_be_padded_and_continued::CLAIM, small_windows_hold_back_and_lose_nothing::CLAIM];
