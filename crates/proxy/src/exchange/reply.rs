//! What answers of Strait's own need of their exchange.

use std::time::{Duration, SystemTime};

use crate::connection::Life;
use crate::connection::connections::Connections;
use crate::connection::delivery::Lingering;
use crate::cx::Cx;
use crate::exchange::exchanges::Exchanges;
use crate::keys::ExchangeKey;
use crate::tools::text::Text;
use crate::tools::time::Time;

impl Cx {
    /// The date of what is said now (RFC 9110, section 6.6.1).
    pub(crate) fn date(&self, now: Time) -> Text {
        let since_1970 = self.wall_clock_zero.saturating_add(now.as_nanos());
        let date = SystemTime::UNIX_EPOCH + Duration::from_nanos(since_1970);
        Text::of_date(date)
    }
}

impl Exchanges {
    /// There is no telling where the next request would begin: the connection ends with the reply.
    pub(crate) fn stop_reading(&self, key: ExchangeKey, connections: &mut Connections, cx: &Cx) {
        let left = cx.snapshot.limits.discard_bytes_max;
        let Some(exchange) = self.get(key) else { return };
        if !exchange.downstream.is_alone() {
            return;
        }
        let downstream = exchange.downstream.connection;
        let Some(connection) = connections.get_mut(downstream) else { return };
        if let Some(downstream) = connection.downstream_mut() {
            if !exchange.request.is_complete {
                downstream.lingering = Some(Box::new(Lingering::new(left)));
            }
            downstream.life = Life::LingerWhenSent;
        }
    }
}
