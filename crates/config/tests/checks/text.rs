//! What holds for every text: an answer, and for a good one a way back.

use std::collections::BTreeMap;

use config::{Errors, FilterKinds, Loader, effective, effective_yaml};
use schemars::JsonSchema;
use serde::Deserialize;

/// A filter's configuration with a bit of everything.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Sample {
    /// Fields that are set.
    set: BTreeMap<String, String>,
    /// Fields that are removed.
    remove: Vec<String>,
}

/// Checks what is promised of any input.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let mut kinds = FilterKinds::new();
    kinds.register("sample", |config: Sample| Ok(config)).expect("the schema is sound");
    let mut loader = Loader::new(kinds).expect("the schema is sound");
    match loader.load("f", text) {
        Err(errors) => check_errors(text, &errors),
        Ok(first) => {
            let again = loader.load("f", text).expect("what was good once is good again");
            assert_eq!(again.changes, config::snapshot::Changes::default(), "nothing changed");
            let yaml = effective_yaml(&first);
            let back = loader.load("f", &yaml).expect("what is shown is a configuration");
            assert_eq!(effective(&back), effective(&first), "{yaml}");
        }
    }
}

/// Every error says where, what and what else.
fn check_errors(text: &str, errors: &Errors) {
    assert!(!errors.errors.is_empty());
    for error in &errors.errors {
        assert!(error.line >= 1 && error.column >= 1, "{error}");
        // A carriage return alone ends a line of YAML, and the end is a line of its own.
        assert!(error.line as usize <= text.split(['\n', '\r']).count() + 1, "{error}");
        assert!(!error.rule.is_empty() && !error.hint.is_empty(), "{error}");
    }
    assert!(!errors.to_string().is_empty());
}
