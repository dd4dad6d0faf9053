//! What is observed of each exchange.

pub(crate) mod build;
pub mod file;

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::access_log::{REQUEST_HEADERS, RESPONSE_HEADERS};
use crate::resource::access_log::file::Format as AccessLogFormat;

/// What is observed of each exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where lines go, or none for no access log.
    pub output: Option<AccessLogOutput>,
    /// How a line looks.
    pub format: AccessLogFormat,
    /// The fields of a line, or none for all but header fields.
    pub fields: Option<Arc<[AccessLogField]>>,
    /// The header fields that lines need; none of either side where there are none.
    pub captures: Arc<Captures>,
    /// If not empty, one of these holds for an exchange that has a line.
    pub only: Arc<[AccessLogCondition]>,
    /// None of these does.
    pub except: Arc<[AccessLogCondition]>,
    /// Whether stage times are taken (`/slow`, stage histograms, access log).
    pub stage_times: bool,
}

impl AccessLog {
    /// The names of the chosen fields, as a file has them.
    #[must_use]
    pub fn field_names(&self) -> Option<Vec<String>> {
        let named = |prefix: &str, names: &[Box<str>], place: usize| {
            format!("{prefix}{}", names.get(place).map_or("", AsRef::as_ref))
        };
        let name = |field: &AccessLogField| match *field {
            AccessLogField::Named(name) => name.to_owned(),
            AccessLogField::Request(place) => named(REQUEST_HEADERS, &self.captures.request, place),
            AccessLogField::Response(place) => {
                named(RESPONSE_HEADERS, &self.captures.response, place)
            }
        };
        self.fields.as_ref().map(|fields| fields.iter().map(name).collect())
    }
}

/// A field of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogField {
    /// One of [`crate::access_log::FIELDS`].
    Named(&'static str),
    /// A header field of the request, by its place in [`Captures::request`].
    Request(usize),
    /// A header field of the response, by its place in [`Captures::response`].
    Response(usize),
}

/// The header fields that are kept for the access log, by their names in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captures {
    /// Of requests.
    pub request: Box<[Box<str>]>,
    /// Of responses.
    pub response: Box<[Box<str>]>,
    /// Of the names: what was kept by other names is known by another digest.
    pub digest: u32,
}

impl Captures {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.request.is_empty() && self.response.is_empty()
    }
}

/// Which exchanges are meant: all that is given has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogCondition {
    /// Statuses, of which 0 is none; empty for any.
    pub statuses: Box<[RangeInclusive<u16>]>,
    /// Beginnings of the target; empty for any.
    pub prefixes: Box<[Box<str>]>,
    /// Longer than this.
    pub slower_than: Option<Duration>,
    /// One of so many.
    pub one_in: Option<NonZeroU32>,
}

/// Where access log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogOutput {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Appended to this file, which is opened again on SIGUSR1 (after a rotation).
    File(Arc<Path>),
}
