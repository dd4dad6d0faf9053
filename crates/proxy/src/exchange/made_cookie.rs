//! The cookie by which a client stays at its endpoint, where it does not have one yet (`hash` of a rule).

use config::hash::MadeCookie;
use config::snapshot::Action;
use wire::head::ResponseHead;

use crate::cx::Cx;
use crate::exchange::Exchange;

impl Exchange {
    /// Adds the cookie that was made for the client, if one was, to the final response of an upstream.
    #[inline]
    pub(crate) fn add_made_cookie(&mut self, head: &mut ResponseHead<'_>, cx: &mut Cx) {
        let Some(value) = self.route.as_mut().and_then(|route| route.cookie.take()) else { return };
        let Some(cookie) = self.made_cookie() else { return };
        cookie.with_text(value, &mut cx.searches, |text| head.append(b"set-cookie", text));
    }

    /// How its rule makes cookies; none where the rule is gone, or makes none any more.
    fn made_cookie(&self) -> Option<&MadeCookie> {
        let (table, place) = self.route.as_ref()?.rule?;
        let rule = self.snapshot.route_table(table)?.rules.get(usize::try_from(place).ok()?)?;
        match &rule.action {
            Action::Forward(forward) => forward.hashing.as_ref()?.made_cookie(),
            Action::Respond(_) | Action::Redirect(_) => None,
        }
    }
}
