//! Scenario `policies`: what checks, outlier detection, limits, retries, hedging and `preconnect` cost a GET while nothing fails,
//! beside none of them, and beside the same in Envoy.
//!
//! All run at the same time, each in a process of its own, and take turns as the proxies of other scenarios do.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::binary::Binary;
use super::lineup::Table;
use super::report::{Report, Target};
use super::tools::Tools;
use super::{Options, routes};

/// The directories of configurations, below `bench/configs`, and what stands behind the proxy's name in results.
const CONFIGS: [(&str, &str); 2] = [("http1", ""), ("policies", ": policies")];

/// Measures all of them.
///
/// # Errors
///
/// If a proxy or the generator fails.
pub(crate) fn run(tools: &Tools, options: &Options) -> Result<Report> {
    let mut tables = Vec::new();
    for binary in tools.binaries_of(routes::SETUP) {
        for (configs, what) in CONFIGS {
            tables.push(table(&tools.root, binary, configs, what)?);
        }
    }
    let (mut report, key) = routes::measure(tools, options, tables)?;
    let cpu = |ours: &str, theirs: &str| report.cpu_ratio((ours, theirs), key);
    report.targets = vec![
        Target::new("all policies, to none", 1.03, cpu("strait: policies", "strait")),
        Target::new("all policies, to Envoy", 0.32, cpu("strait: policies", "envoy: policies")),
    ];
    Ok(report)
}

fn table(root: &Path, binary: &Binary, configs: &str, what: &str) -> Result<Table> {
    let name = binary.kind.config().context("it has a configuration")?;
    let path = root.join("bench/configs").join(configs).join(name);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(Table {
        binary: Binary { name: format!("{}{what}", binary.name), ..binary.clone() },
        text,
        met: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::kinds::ProxyKind;

    #[test]
    fn both_proxies_have_each_configuration() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for kind in [ProxyKind::Strait, ProxyKind::Envoy] {
            for (configs, what) in CONFIGS {
                let table = table(&root, &Binary::new(kind, "x".into()), configs, what).unwrap();
                let has_policies = table.text.contains("preconnect");
                assert_eq!(has_policies, configs == "policies", "{}", table.binary.name);
            }
        }
    }
}
