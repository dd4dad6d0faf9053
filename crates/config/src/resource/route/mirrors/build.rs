//! `mirror` of a rule to [`Mirror`]s.

use crate::findings::{Findings, Problem};
use crate::resource::route::file as route;
use crate::resource::route::matching::FractionKey;
use crate::resource::route::mirrors::Mirror;
use crate::resource::runtime::build::Values;
use crate::sections::names::Names;
use crate::snapshot::ClusterId;
use crate::text::tree::Site;

/// The clusters that get copies of a rule's requests, all but those with a mistake, which is reported. `site` is that
/// of the rule.
pub(crate) fn mirrors(
    file: &route::Rule,
    site: &Site<'_>,
    clusters: &mut Names<'_, ClusterId>,
    values: &mut Values<'_>,
    findings: &mut Findings<'_>,
) -> Box<[Mirror]> {
    let mut built: Vec<Mirror> = Vec::new();
    let at = site.key("mirror");
    for (entry, site) in file.mirror.iter().flatten().zip(at.items()) {
        let asked = FractionKey { percent: entry.percent, runtime: entry.runtime.clone() };
        let fraction = values.fraction(&asked, &site, findings);
        let cluster = clusters.resolve(&entry.cluster, "cluster", &site.key("cluster"), findings);
        let suffix = check_suffix(&entry.host_suffix)
            .map_err(|problem| site.key("host_suffix").error(findings, problem));
        let (Some(cluster), Some(fraction), Ok(())) = (cluster, fraction, suffix) else { continue };
        if built.iter().any(|other| other.cluster == cluster) {
            let rule = "this cluster already gets a copy of each request";
            site.key("cluster").error(findings, Problem::new(rule, "remove one of the two"));
            continue;
        }
        if fraction.percent.is_none() && fraction.runtime.is_none() {
            let rule = "no request is copied, since `percent` is 0 and no `runtime` may raise it";
            site.key("percent").warning(findings, Problem::new(rule, "write 1, or add `runtime`"));
        }
        let host_suffix = entry.host_suffix.to_ascii_lowercase().into();
        built.push(Mirror { cluster, fraction, host_suffix });
    }
    built.into()
}

/// Bytes of the longest suffix: a label of a host name has no more.
const SUFFIX_BYTES_MAX: usize = 63;

/// A suffix may not make another host's port, path or user of the host.
fn check_suffix(suffix: &str) -> Result<(), Problem> {
    let is_of_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.' || b == b'_';
    if suffix.len() <= SUFFIX_BYTES_MAX && suffix.bytes().all(is_of_name) {
        return Ok(());
    }
    let rule = format!(
        "the end of a host has letters, digits, `-`, `.` and `_`, and at most {SUFFIX_BYTES_MAX} bytes"
    );
    Err(Problem::new(rule, "write -shadow, or `\"\"` to leave the host as it is"))
}
