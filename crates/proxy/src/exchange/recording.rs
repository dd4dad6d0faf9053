//! What is kept of a request's head for logs and error pages.

use wire::head::RequestHead;

use crate::cx::Cx;
use crate::exchange::Exchange;
use crate::exchange::record::Words;
use crate::tools::time::Time;

impl Exchange {
    /// Keeps what logs and error pages say of a request.
    #[inline]
    pub(crate) fn record_head(&mut self, head: &RequestHead<'_>, cx: &mut Cx, now: Time) {
        let snapshot = &self.snapshot;
        if snapshot.access_log.stage_times
            || snapshot.access_log.output.is_some()
            || snapshot.listener_bounds.has_error_pages
        {
            self.record.words = Words::take(head, &mut cx.buffers);
        }
        if !snapshot.access_log.captures.is_empty() {
            let captures = &snapshot.access_log.captures;
            self.record.capture_request(captures, head, &mut cx.buffers);
        }
        if cx.emitter.is_debug() {
            cx.debug_request(self.downstream, head, now);
        }
    }
}
