//! curl meets each rule over HTTP/1.1 and HTTP/2, and nginx sees what the rule makes of its requests, over either.

use anyhow::{Context as _, Result};

use super::{ASKS, Routed};
use crate::claim::Claim;
use crate::lab::Lab;
use crate::peer::Peer;

pub(super) const CLAIM: Claim =
    Claim { module: module_path!(), needs: &[Peer::Curl, Peer::Nginx], holds };

fn holds(lab: &Lab) -> Result<()> {
    for protocol in ["http1", "http2"] {
        let routed = Routed::start(lab, protocol)?;
        let versions = ["--http1.1", "--http2-prior-knowledge"];
        for version in versions {
            for ask in ASKS {
                let url = routed.strait.url(ask.target);
                let format = "|%{http_code}|%header{location}|%header{x-canary}";
                let mut arguments = vec![version, "-X", ask.method, "-w", format, &url];
                let fields: Vec<_> =
                    ask.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
                arguments.extend(fields.iter().flat_map(|field| ["-H", field]));
                let heard = lab.curl(&arguments)?;
                let way = || format!("with {version} to {protocol}");
                routed.check(ask, &heard).with_context(way)?;
            }
        }
        routed.check_copies(versions.len())?;
        std::fs::remove_file(&routed.lab_log)?;
    }
    Ok(())
}
