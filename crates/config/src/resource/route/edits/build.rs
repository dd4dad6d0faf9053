//! `headers` of a table, a rule or a weighted cluster to [`HeaderEdits`].

use crate::findings::Findings;
use crate::resource::route::edits::{
    EditPlace, Editor, Edits, EditsKey, HeaderEdits, HeadersKey, Side,
};
use crate::text::tree::Site;

/// The edits that are asked for; none if nothing is. What is wrong is reported and left out.
pub(crate) fn edits(
    file: Option<&HeadersKey>,
    site: &Site<'_>,
    findings: &mut Findings<'_>,
) -> Option<Box<HeaderEdits>> {
    let file = file?;
    let mut side = |file: &EditsKey, side: Side| {
        let mut errors = Vec::new();
        let edits = Edits::new(file, side, Editor::Route, &mut errors);
        let site = site.key(side.key());
        for error in errors {
            let site = site.key(error.verb);
            match &error.at {
                EditPlace::Name(name) => site.key(name).error(findings, error.problem),
                EditPlace::Index(index) => {
                    if let Some(site) = site.items().nth(*index) {
                        site.error(findings, error.problem);
                    }
                }
            }
        }
        edits
    };
    let edits = HeaderEdits {
        request: side(&file.request, Side::Request),
        response: side(&file.response, Side::Response),
    };
    (!edits.is_empty()).then(|| Box::new(edits))
}
