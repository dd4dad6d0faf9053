//! Which error page a reply has, and what stands for its variables.

use config::error_pages::{Page, Variable};
use config::snapshot::{RouteTable, RouteTableId};
use telemetry::cause::Cause;
use wire::h1::reason_phrase;
use wire::host::Authority;

use crate::exchange::Exchange;
use crate::exchange::record::Word;

/// A page of the configuration, filled in.
pub(crate) struct FilledPage {
    pub(crate) content_type: Box<[u8]>,
    pub(crate) body: Vec<u8>,
}

impl Exchange {
    /// The page for a reply with this status and cause: of the route table, or else of the listener.
    pub(crate) fn error_page(
        &self,
        status: u16,
        cause: Option<Cause>,
        date: &[u8],
    ) -> Option<FilledPage> {
        if !self.snapshot.listener_bounds.has_error_pages {
            return None;
        }
        let host = self.host();
        let word = cause.map(Cause::as_str);
        let own = self.route_table(&host).and_then(|table| table.error_pages.find(status, word));
        let page = own.or_else(|| self.listener().http.error_pages.find(status, word))?;
        Some(self.fill(page, status, word, &host, date))
    }

    fn fill(
        &self,
        page: &Page,
        status: u16,
        cause: Option<&str>,
        host: &[u8],
        date: &[u8],
    ) -> FilledPage {
        let digits = status.to_string();
        let body = page.fill(|variable| match variable {
            Variable::Status => digits.as_bytes(),
            Variable::Reason => reason_phrase(status),
            Variable::Cause => cause.unwrap_or_default().as_bytes(),
            Variable::RequestId => self.record.words.word(Word::RequestId),
            Variable::Host => host,
            Variable::Date => date,
        });
        FilledPage { content_type: page.content_type().as_bytes().into(), body }
    }

    /// The host of the request as it is compared; empty if it has none, or its head was not read.
    fn host(&self) -> Vec<u8> {
        let authority = Authority::parse(self.record.words.word(Word::Host));
        authority.map_or_else(Vec::new, |authority| authority.normal_host())
    }

    /// The route table of its rule, or of its host where no rule was found or asked for.
    fn route_table(&self, host: &[u8]) -> Option<&RouteTable> {
        let of_rule = self.route.as_ref().and_then(|route| route.rule).map(|(table, _)| table);
        let id: Option<RouteTableId> = of_rule.or_else(|| {
            let authority = || self.record.words.word(Word::Host);
            self.listener().hosts.find_authority(host, authority)
        });
        self.snapshot.route_table(id?).map(AsRef::as_ref)
    }
}
