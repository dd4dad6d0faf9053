//! Header fields that the access log asks for, copied from the heads as they pass.

use config::snapshot::Captures;
use telemetry::captures::{CAPTURES_BYTES_MAX, begin, push};
use wire::head::{RequestHead, ResponseHead};

use crate::exchange::record::ExchangeRecord;
use crate::tools::buffers::Buffers;

impl ExchangeRecord {
    /// Copies fields of the request. Those of the response follow.
    #[cold]
    pub(crate) fn capture_request(
        &mut self,
        captures: &Captures,
        head: &RequestHead<'_>,
        buffers: &mut Buffers,
    ) {
        let mut kept = buffers.lease(CAPTURES_BYTES_MAX);
        begin(captures.digest, &mut |bytes| kept.push(bytes));
        for name in &captures.request {
            let length = kept.len();
            push(head.find(name.as_bytes()), length, &mut |bytes| kept.push(bytes));
        }
        if let Some(former) = self.captures.replace(kept) {
            buffers.give_back(former);
        }
    }

    /// Copies fields of the final response, as the client gets them.
    #[cold]
    pub(crate) fn capture_response(&mut self, captures: &Captures, head: &ResponseHead<'_>) {
        let Some(kept) = &mut self.captures else { return };
        for name in &captures.response {
            let length = kept.len();
            push(head.find(name.as_bytes()), length, &mut |bytes| kept.push(bytes));
        }
    }
}
