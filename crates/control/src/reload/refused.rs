//! Why a configuration is not taken up, for the log and for pages.

use std::path::PathBuf;
use std::{fmt, io};

use config::{Errors, first_findings};

use crate::log_output::OpenError;
use crate::workers::BindFailure;

/// Why a configuration is not taken up.
#[derive(Debug)]
pub enum Refused {
    /// The file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The text is wrong.
    Invalid(Errors),
    /// Its access log cannot be opened.
    AccessLog(OpenError),
    /// Listeners cannot be bound.
    Unbindable(Vec<BindFailure>),
}

/// Where the log says that all findings of this configuration file, and of those that it names, are.
pub(crate) fn checked(file: &str) -> String {
    format!("`strait check {file}`")
}

impl Refused {
    /// How many mistakes that are.
    pub(crate) fn count(&self) -> u32 {
        let count = match self {
            Self::Unreadable(..) | Self::AccessLog(_) => 1,
            Self::Invalid(errors) => errors.errors.len().saturating_add(errors.more),
            Self::Unbindable(failures) => failures.len(),
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The mistakes for the log, the first of them if there are many. `file` is the configuration file.
    pub(crate) fn to_log(&self, file: &str) -> String {
        match self {
            Self::Unreadable(..) | Self::AccessLog(_) => self.to_string(),
            Self::Invalid(errors) => errors.first(&checked(file)),
            Self::Unbindable(failures) => first_findings(failures, 0, "/config"),
        }
    }

    /// Each mistake for the admin interface.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Invalid(errors) => {
                serde_json::to_value(&errors.errors).unwrap_or(serde_json::Value::Null)
            }
            Self::Unbindable(failures) => {
                failures.iter().map(ToString::to_string).collect::<Vec<_>>().into()
            }
            Self::Unreadable(..) | Self::AccessLog(_) => vec![self.to_string()].into(),
        }
    }
}

impl std::error::Error for Refused {}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => {
                write!(f, "{}: cannot be read: {error}", path.display())
            }
            Self::Invalid(errors) => errors.fmt(f),
            Self::AccessLog(error) => error.fmt(f),
            Self::Unbindable(failures) => {
                for (place, failure) in failures.iter().enumerate() {
                    write!(f, "{}{failure}", if place == 0 { "" } else { "\n" })?;
                }
                Ok(())
            }
        }
    }
}
