//! When a request is to be sent again, as it says itself by the fields of Envoy.
//!
//! A client that may choose its retries multiplies its requests, so it is believed where the listener says so
//! (`trust_retries`) and nowhere else. The fields go no further in either case: [`asked_timeout`](super::asked_timeout)
//! removes them. Endpoints that were tried stand here, too: both are for few requests, and most own nothing of it.

use config::retry::{AskedRetries, RetryPolicy};
use config::snapshot::EndpointId;
use wire::head::RequestHead;

use crate::exchange::asked_timeout::{HEDGE, RETRIES, TRY};
use crate::keys::ExchangeKey;

/// What a request has beyond the `retry` of its rule.
#[derive(Debug, Default)]
pub(crate) struct OwnRetries {
    /// What it asks for, and what follows of that and its rule.
    pub(crate) asked: Option<(AskedRetries, RetryPolicy)>,
    /// The endpoints of its attempts, of which there are few.
    pub(crate) tried: Vec<EndpointId>,
    /// Its earlier attempt, which goes on beside the one that it is at.
    pub(crate) hedge: Option<ExchangeKey>,
}

/// What a request asks for. Nothing is removed.
#[cold]
pub(crate) fn read(head: &RequestHead<'_>) -> Option<AskedRetries> {
    let [on, grpc_on, retries_max, statuses, headers] = RETRIES.map(|name| head.find(name));
    let (try_timeout, hedges) = (head.find(TRY), head.find(HEDGE));
    let all = [on, grpc_on, retries_max, statuses, headers, try_timeout, hedges];
    if all.iter().all(Option::is_none) {
        return None;
    }
    let mut asked = AskedRetries::default();
    on.into_iter().chain(grpc_on).for_each(|value| asked.set_on(value));
    if let Some(value) = retries_max {
        asked.set_retries_max(value);
    }
    if let Some(value) = statuses {
        asked.set_statuses(value);
    }
    if let Some(value) = headers {
        asked.set_headers(value);
    }
    if let Some(value) = try_timeout {
        asked.set_try_timeout(value);
    }
    if let Some(value) = hedges {
        asked.set_hedges(value);
    }
    Some(asked)
}
