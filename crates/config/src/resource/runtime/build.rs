//! `runtime` to the values that rules ask for.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::file;
use crate::findings::{Findings, Problem};
use crate::map::Map;
use crate::nearest;
use crate::percent::Percent;
use crate::resource::route::matching::FractionKey;
use crate::resource::route::tables::Tables;
use crate::resource::runtime::{Fraction, Runtime, RuntimeCell, RuntimeUse};
use crate::sections::names::check_name;
use crate::text::tree::Site;

/// The values of a file, and the cells by which the admin interface puts others over them.
pub(crate) struct Values<'a> {
    file: &'a BTreeMap<String, Percent>,
    former: Option<&'a Runtime>,
    /// Of names that nothing asked for before.
    added: Map<Box<str>, Arc<RuntimeCell>>,
}

impl<'a> Values<'a> {
    pub(crate) fn new(file: &'a BTreeMap<String, Percent>, former: Option<&'a Runtime>) -> Self {
        Self { file, former, added: Map::default() }
    }

    /// The share that a rule takes; none if its name is wrong, which is reported. `site` is that of `fraction`.
    pub(crate) fn fraction(
        &mut self,
        file: &FractionKey,
        site: &Site<'_>,
        findings: &mut Findings<'_>,
    ) -> Option<Fraction> {
        let runtime = match &file.runtime {
            None => None,
            Some(name) => match check_name(name) {
                Ok(()) => Some(self.used(name)),
                Err(problem) => {
                    site.key("runtime").error(findings, problem);
                    return None;
                }
            },
        };
        Some(Fraction { percent: file.percent, runtime })
    }

    fn used(&mut self, name: &str) -> RuntimeUse {
        let former = self.former.and_then(|former| former.find(name));
        let cell = former.map_or_else(
            || {
                let added = self.added.entry(name.into());
                Arc::clone(added.or_insert_with(|| Arc::new(RuntimeCell::new(name))))
            },
            |former| Arc::clone(&former.cell),
        );
        RuntimeUse { file: self.file.get(name).copied(), cell }
    }
}

/// The values that these tables ask for.
pub(crate) fn used(tables: &Tables) -> Runtime {
    Runtime::new(tables.iter().flat_map(|table| &*table.runtime))
}

/// Reports names that are none, and values that nothing asks for.
pub(crate) fn check(
    file: &file::File,
    site: &Site<'_>,
    used: &Runtime,
    findings: &mut Findings<'_>,
) {
    for name in file.runtime.keys() {
        if let Err(problem) = check_name(name) {
            site.key_error(findings, name, problem);
        } else if used.find(name).is_none() {
            let names = used.iter().map(|used| used.cell.name());
            let none = "remove it, or name it under `runtime` of a `fraction`";
            let hint = match nearest::nearest(name, names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => none.to_owned(),
            };
            site.key(name).warning(findings, Problem::new("no rule uses this value", hint));
        }
    }
}
