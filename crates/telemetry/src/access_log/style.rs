//! How lines are written, and which exchanges have one.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use super::{FIELDS, Field, Line, Value};
use crate::captures;

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// `key=value` pairs behind a Common Log Format beginning.
    Text,
    /// The Combined Log Format of Apache and nginx.
    Combined,
}

/// What a line has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogField {
    /// A field of the table, by its name.
    Named(Box<str>),
    /// A header field: what it is called in the line, and its place among those that are captured.
    Captured {
        /// The name in the line, such as `request_headers.accept`.
        name: Box<str>,
        /// Its place, from 0, requests' first.
        place: usize,
    },
}

/// Which exchanges are meant: all that is given has to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogCondition {
    /// The status is in one of these, if there are any; 0 stands for none.
    pub statuses: Box<[RangeInclusive<u16>]>,
    /// The target begins with one of these, if there are any.
    pub prefixes: Box<[Box<[u8]>]>,
    /// It took longer than this, in ns.
    pub slower_than: Option<u64>,
    /// One of so many, of those for which the rest holds.
    pub one_in: Option<NonZeroU32>,
}

/// How lines are written, and of which exchanges.
#[derive(Clone, Debug)]
pub struct LogStyle {
    pub(crate) format: LogFormat,
    pub(crate) fields: Box<[Selected]>,
    /// Of the names that are captured.
    pub(crate) digest: u32,
    /// The place of the captured `referer`, for [`LogFormat::Combined`].
    pub(crate) referer: Option<usize>,
    only: Box<[Counted]>,
    except: Box<[Counted]>,
}

/// A condition, and how many exchanges it was asked for.
#[derive(Clone, Debug)]
struct Counted {
    condition: LogCondition,
    seen: u32,
}

/// A field as a line has it.
#[derive(Clone, Debug)]
pub(crate) enum Selected {
    Field(&'static Field),
    Captured { json_key: Box<str>, text_key: Box<str>, place: usize, digest: u32 },
}

impl LogStyle {
    /// Every field, of every exchange.
    #[must_use]
    pub fn all(format: LogFormat) -> Self {
        let fields = FIELDS.iter().map(Selected::Field).collect();
        let (only, except) = (Box::default(), Box::default());
        Self { format, fields, digest: 0, referer: None, only, except }
    }

    /// These fields, in this order, of those that were captured as [`Self::with_captures`] says. A name that no field
    /// has is left out.
    #[must_use]
    pub fn with_fields(self, fields: &[LogField]) -> Self {
        let digest = self.digest;
        let fields = fields.iter().filter_map(|field| match field {
            LogField::Named(name) => {
                FIELDS.iter().find(|known| *known.name == **name).map(Selected::Field)
            }
            LogField::Captured { name, place } => Some(Selected::Captured {
                json_key: format!("\"{name}\":").into(),
                text_key: format!(" {name}=").into(),
                place: *place,
                digest,
            }),
        });
        Self { fields: fields.collect(), ..self }
    }

    /// Header fields were captured by names with this digest, `referer` at this place.
    #[must_use]
    pub fn with_captures(self, digest: u32, referer: Option<usize>) -> Self {
        Self { digest, referer, ..self }
    }

    /// Only exchanges for which one of `only` holds, if there are any, and none of `except`.
    #[must_use]
    pub fn with_conditions(self, only: Vec<LogCondition>, except: Vec<LogCondition>) -> Self {
        let counted = |conditions: Vec<LogCondition>| {
            conditions.into_iter().map(|condition| Counted { condition, seen: 0 }).collect()
        };
        Self { only: counted(only), except: counted(except), ..self }
    }

    /// Whether this exchange has a line.
    pub(crate) fn takes(&mut self, line: &Line<'_>) -> bool {
        let holds = |conditions: &mut [Counted]| conditions.iter_mut().any(|it| it.holds(line));
        (self.only.is_empty() || holds(&mut self.only)) && !holds(&mut self.except)
    }
}

impl Counted {
    fn holds(&mut self, line: &Line<'_>) -> bool {
        let LogCondition { statuses, prefixes, slower_than, one_in } = &self.condition;
        let event = &line.event;
        let holds = (statuses.is_empty() || statuses.iter().any(|it| it.contains(&event.status)))
            && (prefixes.is_empty() || prefixes.iter().any(|it| event.target.starts_with(it)))
            && slower_than.is_none_or(|bound| event.stages.total > bound);
        if !holds {
            return false;
        }
        let Some(one_in) = one_in else { return true };
        let is_it = self.seen == 0;
        self.seen = (self.seen + 1) % one_in.get();
        is_it
    }
}

impl Selected {
    pub(crate) const fn is_in_beginning(&self) -> bool {
        match self {
            Self::Field(field) => field.is_in_beginning,
            Self::Captured { .. } => false,
        }
    }

    pub(crate) fn json_key(&self) -> &str {
        match self {
            Self::Field(field) => field.json_key,
            Self::Captured { json_key, .. } => json_key,
        }
    }

    pub(crate) fn text_key(&self) -> &str {
        match self {
            Self::Field(field) => field.text_key,
            Self::Captured { text_key, .. } => text_key,
        }
    }

    pub(super) fn value<'l>(&self, line: &'l Line<'_>) -> Value<'l> {
        match self {
            Self::Field(field) => (field.value)(line),
            Self::Captured { place, digest, .. } => {
                let value = captures::value(line.event.captures, *digest, *place);
                value.map_or(Value::Absent, Value::Bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{ExchangeFinished, Stages};
    use crate::sample::exchange;

    fn takes(style: &mut LogStyle, status: u16, target: &[u8], total: u64) -> bool {
        let stages = Stages { total, ..Stages::NONE };
        let event = ExchangeFinished { status, target, stages, ..exchange() };
        style.takes(&Line { event, listener: "", route: "", rule: "", cluster: "" })
    }

    #[test]
    fn one_condition_of_the_list_is_enough_and_all_of_its_parts_have_to_hold() {
        let errors =
            LogCondition { statuses: [500..=599, 0..=0].into(), ..LogCondition::default() };
        let slow = LogCondition {
            prefixes: [Box::from(&b"/api/"[..])].into(),
            slower_than: Some(1_000),
            ..LogCondition::default()
        };
        let health = LogCondition {
            prefixes: [Box::from(&b"/healthz"[..])].into(),
            ..LogCondition::default()
        };
        let mut style =
            LogStyle::all(LogFormat::Json).with_conditions(vec![errors, slow], vec![health]);
        for (status, target, total, is_taken) in [
            (503, &b"/"[..], 0, true),
            (0, b"/", 0, true),
            (200, b"/", 5_000, false),
            (200, b"/api/x", 1_001, true),
            (200, b"/api/x", 1_000, false),
            (503, b"/healthz?x", 0, false),
        ] {
            assert_eq!(takes(&mut style, status, target, total), is_taken, "{status} {total}");
        }
        let mut all = LogStyle::all(LogFormat::Json);
        assert!(takes(&mut all, 200, b"/", 0));
    }

    #[test]
    fn a_share_is_exact() {
        let share = LogCondition {
            statuses: [200..=299].into(),
            one_in: NonZeroU32::new(10),
            ..LogCondition::default()
        };
        let mut style = LogStyle::all(LogFormat::Json).with_conditions(vec![share], Vec::new());
        let taken = (0..1_000).filter(|n| takes(&mut style, 200 + n % 2 * 200, b"/", 0)).count();
        assert_eq!(taken, 50);
    }
}
