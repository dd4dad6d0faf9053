//! SOFARPC, the Java library that Bolt is the protocol of. Its libraries come from Maven's repository, so
//! that claims about it are tried by name alone.

mod its_calls_go_through;

use crate::claim::Claim;

/// Those that are tried only if their name is asked for.
pub(super) const ASKED: &[Claim] = &[its_calls_go_through::CLAIM];
