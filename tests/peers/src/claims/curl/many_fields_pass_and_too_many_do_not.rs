//! Ninety fields arrive in order; two hundred are refused with 431.

use anyhow::{Result, ensure};

use crate::claim::Claim;
use crate::lab::Lab;
use crate::origin::Origin;
use crate::peer::Peer;
use crate::strait::Strait;

pub(super) const CLAIM: Claim = Claim { module: module_path!(), needs: &[Peer::Curl], holds };

fn holds(lab: &Lab) -> Result<()> {
    let origin = Origin::start()?;
    let strait = Strait::in_front_of(lab, origin.address())?;

    let url = strait.url("/");
    let with = |count: usize| {
        let fields: Vec<String> = (0..count).map(|n| format!("x-field-{n}: {n}")).collect();
        let arguments = fields.iter().flat_map(|field| ["-H", field]);
        let format = ["-w", "%{http_code}", &url];
        lab.curl(&arguments.chain(format).collect::<Vec<_>>())
    };
    let seen = with(90)?;
    let names = seen.lines().filter_map(|line| line.strip_prefix("x-field-"));
    ensure!(names.eq((0..90).map(|n| format!("{n}: {n}"))), "{seen}");
    let refused = with(200)?;
    ensure!(refused.ends_with("431"), "{refused}");
    Ok(())
}
