//! Permissions of files as chmod(1) has them: `0660`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::findings::Problem;

/// Permission bits, without those that only programs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "ModeText", into = "String")]
pub struct FileMode(u32);

/// How permissions are written, for JSON Schema.
const MODE_PATTERN: &str = "^0?[0-7]{3}$";

impl FileMode {
    /// Owner and group.
    pub const GROUP: Self = Self(0o660);

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl FromStr for FileMode {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let digits = match text.len() {
            4 => text.strip_prefix('0').unwrap_or_default(),
            _ => text,
        };
        let is_mode = digits.len() == 3 && digits.bytes().all(|b| matches!(b, b'0'..=b'7'));
        let bits = u32::from_str_radix(digits, 8).ok().filter(|_| is_mode);
        let rule = "permissions are three octal digits, for owner, group and others";
        bits.map(Self).ok_or_else(|| Problem::new(rule, "write 0660, for instance"))
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl From<FileMode> for String {
    fn from(mode: FileMode) -> Self {
        mode.to_string()
    }
}

/// Both forms that a file may have. Without quotes, digits are a number to YAML, but octal ones here.
#[derive(Deserialize)]
#[serde(untagged)]
enum ModeText {
    Digits(u64),
    Text(String),
}

impl TryFrom<ModeText> for FileMode {
    type Error = Problem;

    fn try_from(text: ModeText) -> Result<Self, Problem> {
        match text {
            // A zero in front is gone.
            ModeText::Digits(digits) => format!("{digits:03}").parse(),
            ModeText::Text(text) => text.parse(),
        }
    }
}

impl JsonSchema for FileMode {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "FileMode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "pattern": MODE_PATTERN,
            "minimum": 0,
            "x-format": "mode",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_octal_digits() {
        for (text, bits) in
            [("0660", 0o660), ("660", 0o660), ("0007", 7), ("000", 0), ("0777", 0o777)]
        {
            assert_eq!(text.parse::<FileMode>().map(FileMode::bits), Ok(bits), "{text}");
        }
        for text in ["", "66", "0o660", "0680", "1660", "4755", "00660", "+660", "rw-", "432 "] {
            assert!(text.parse::<FileMode>().is_err(), "{text:?}");
        }
        assert_eq!(FileMode(0o60).to_string(), "0060");
        let read = |text: &str| serde_json::from_str::<FileMode>(text).map(FileMode::bits).ok();
        assert_eq!((read("660"), read("7"), read("\"0660\"")), (Some(0o660), Some(7), Some(0o660)));
        assert_eq!((read("432000"), read("680")), (None, None));
    }
}
