//! `handover` alone, out of a file whose other sections may be wrong, or of a later version.
//!
//! `strait upgrade` finds the running process by it. What is wrong elsewhere is for the new process to report, which reads all
//! of the file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::Handover;
use crate::findings::{Errors, Findings, Path, Problem};
use crate::outside::Outside;
use crate::sections;
use crate::snapshot::HandoverOptions;
use crate::text::include;
use crate::text::shape::{self, SchemaError, Shape};
use crate::text::tree::{self, Node, Site, Value};

const KEY: &str = "handover";

const EMPTY_HINT: &str = "write `handover:`, for instance";

/// What is read of the file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Alone {
    #[serde(default)]
    handover: Handover,
}

/// Reads `handover` alone.
#[derive(Debug)]
pub struct HandoverReader(Shape);

impl HandoverReader {
    /// A reader.
    ///
    /// # Errors
    ///
    /// The schema is not one that this crate understands: our own mistake.
    pub fn new() -> Result<Self, SchemaError> {
        Ok(Self(Shape::new(&shape::schema_of::<Alone>(), "")?))
    }

    /// The options in the text of a file, or in one that it includes; what holds without them, if they are nowhere.
    ///
    /// # Errors
    ///
    /// What is wrong with them, and if the text, or a file that may have them, cannot be read at all.
    pub fn read(
        &self,
        file: &str,
        text: &str,
        outside: &dyn Outside,
    ) -> Result<HandoverOptions, Errors> {
        let mut findings = Findings::new(file, text);
        let Some(mut root) = tree::read(text, EMPTY_HINT, &mut findings) else {
            return Err(findings.into_result().expect_err("the reason is reported"));
        };
        let is_here = |root: &Node| root.entries().iter().any(|entry| &*entry.key == KEY);
        let read_before = findings.errors_len();
        if !is_here(&root) {
            include::resolve(&mut root, outside, &mut findings);
        }
        // A file that is no map, or an included one that may have it.
        let mut may_be_missed = !is_here(&root) && findings.errors_len() > read_before;
        match &mut root.value {
            Value::Map(entries) => entries.retain(|entry| &*entry.key == KEY),
            _ => may_be_missed = true,
        }
        tree::expand(&mut root, outside, Path::Root, &mut findings);
        let mut options = Handover::default();
        if shape::check(&mut root, &self.0, Path::Root, &mut findings) {
            match tree::deserialize::<Alone>(&root) {
                Ok(Alone { handover }) => options = handover,
                Err(mismatch) => {
                    let at = mismatch.at.unwrap_or(root.at);
                    let hint = "see docs/configuration/reference.md";
                    let problem = Problem::new(mismatch.message, hint);
                    findings.error(at, Path::Key(&Path::Root, KEY), "", problem);
                }
            }
        }
        sections::startup::check_handover_socket(
            &options,
            &Site::root(&root).key(KEY),
            &mut findings,
        );
        let Err(mut errors) = findings.into_result() else { return Ok((&options).into()) };
        let is_of_section = |path: &str| {
            let behind = path.strip_prefix(KEY);
            behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(['.', '[']))
        };
        if !may_be_missed {
            errors.errors.retain(|error| is_of_section(&error.path));
        }
        if errors.errors.is_empty() { Ok((&options).into()) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::Memory;

    fn read(text: &str, outside: &Memory) -> Result<HandoverOptions, Errors> {
        HandoverReader::new().unwrap().read("strait.yaml", text, outside)
    }

    fn socket(text: &str) -> Option<String> {
        let options = read(text, &Memory::default()).unwrap();
        Some(options.socket?.to_str().unwrap().to_owned())
    }

    #[test]
    fn what_is_wrong_elsewhere_does_not_matter() {
        let own = "handover: { socket: /run/s.sock, users: [7] }\n";
        for other in [
            "",
            "of_a_later_version: 3\n",
            "listeners: [{ name: edge, address: nowhere, chains: 7 }]\n",
            "listeners: 1\nclusters: { a: b }\n",
            "admin: { address: \"${MISSING}\" }\n",
            "include: [missing.yaml]\n",
            "limits: { drain_timeout: 1s, drain_timeout: 2s }\n",
        ] {
            let text = format!("{other}{own}");
            assert_eq!(socket(&text).as_deref(), Some("/run/s.sock"), "{text}");
        }
        assert_eq!(socket("{\"x\": 1, \"handover\": {\"socket\": \"/s\"}}").as_deref(), Some("/s"));
        assert_eq!(socket("listeners: []\n"), None);
        assert_eq!(read(own, &Memory::default()).unwrap().users[..], [7]);
    }

    #[test]
    fn what_is_wrong_in_it_is_reported_with_its_place() {
        for (text, path, rule) in [
            ("handover: { socket: run/s.sock }", "handover.socket", "begins with /"),
            ("handover: { sokcet: /run/s.sock }", "handover.sokcet", ""),
            ("handover: { timeout: soon }", "handover.timeout", ""),
            ("handover: 7", "handover", ""),
            ("no map", "", ""),
            ("x: 1\nhandover: { socket: \"${MISSING}\" }", "handover.socket", "MISSING"),
            ("handover: [", "", ""),
            ("include: [missing.yaml]", "include[0]", "missing.yaml"),
        ] {
            let errors = read(text, &Memory::default()).unwrap_err();
            assert_eq!(errors.errors.len(), 1, "{text}: {errors}");
            assert!(errors.errors[0].path.starts_with(path), "{text}: {errors}");
            assert!(errors.to_string().contains(rule), "{text}: {errors}");
        }
    }

    #[test]
    fn it_may_stand_in_an_included_file_and_have_variables() {
        let mut outside = Memory::default();
        outside.insert("a.yaml", "clusters: 7\nhandover: { socket: '${S}' }\n");
        outside.set_variable("S", "/run/s.sock");
        let options = read("include: [a.yaml]\nlisteners: 3\n", &outside).unwrap();
        assert_eq!(options.socket.unwrap().to_str(), Some("/run/s.sock"));
    }
}
