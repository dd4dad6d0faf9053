//! The route handler `unit`: each user belongs to a unit of the service, by a number in a header field.
//!
//! A service that is split into units keeps the data of a user in one of them. The clients' requests have the user's number
//! in a field, whose last digits say which unit it is: `4711` ends in `11`, and `0` to `49` are unit `a`.
//!
//! ```yaml
//! handlers:
//!   - unit:
//!       header: x-user
//!       table: units
//!       units: [{ rule: a, from: 0, to: 49 }, { rule: b, from: 50, to: 99 }]
//! ```
//!
//! The rules `a` and `b` of the route table `units` say what becomes of the requests. A request without the field is left
//! to the route tables. One with two of them, or with something else than a number, gets 404: by the second of two values a
//! client could choose a unit other than the one that the service looks at.
#![forbid(unsafe_code)]

use std::sync::Arc;

use config::filters::{FilterError, FilterKinds};
use config::findings::Problem;
use config::handlers::{Handled, RouteHandler, RuleName};
use config::matching::Asked;
use schemars::JsonSchema;
use serde::Deserialize;
use wire::head::RequestHead;

/// Sends each user's requests to the user's unit, by a number in a header field.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnitConfig {
    /// The header field with the user's number, of at most 19 digits. Requests without it are left to `routes`.
    pub header: String,
    /// The route table with the rules of the units, one of `routes` of the listener.
    pub table: String,
    /// The units. Together they have each number from 0 to 99 once.
    pub units: Vec<UnitRange>,
}

/// Users of one unit.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnitRange {
    /// The name of the unit's rule in `table`.
    pub rule: String,
    /// The first of its numbers.
    pub from: u8,
    /// The last of its numbers.
    pub to: u8,
}

/// A user's number ends in one of so many.
const ENDINGS: usize = 100;

/// Digits of the longest number.
const DIGITS_MAX: usize = 19;

/// The handler.
#[derive(Clone, Debug)]
pub struct Unit {
    /// In lower case.
    header: Box<[u8]>,
    rules: Vec<RuleName>,
    /// For each ending of a number, the place in `rules`.
    places: [u8; ENDINGS],
}

/// Adds the handler to what a configuration may name.
///
/// # Errors
///
/// If the schema of [`UnitConfig`] is none that a configuration can follow, which a test finds.
pub fn register<F>(kinds: &mut FilterKinds<F>) -> Result<(), config::SchemaError> {
    // A call of RPC has fields, too.
    kinds.register_handler("unit", true, |config: UnitConfig| {
        Ok(Arc::new(Unit::new(&config)?) as Arc<dyn RouteHandler>)
    })
}

impl Unit {
    /// The handler that does what `config` says.
    ///
    /// # Errors
    ///
    /// Each number that belongs to no unit, or to several, and a header field that has no such name.
    pub fn new(config: &UnitConfig) -> Result<Self, Vec<FilterError>> {
        let mut errors = Vec::new();
        let is_name = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_');
        if config.header.is_empty() || !config.header.bytes().all(is_name) {
            let rule = "a header name consists of letters, digits, - and _ here";
            let problem = Problem::new(rule, "write a name such as x-user");
            errors.push(FilterError::new(problem).key("header"));
        }
        let mut places = [None; ENDINGS];
        for (place, unit) in config.units.iter().enumerate() {
            let mut report = |rule: String, hint: String| {
                let error = FilterError::new(Problem::new(rule, hint));
                errors.push(error.key("units").index(place));
            };
            let (from, to) = (usize::from(unit.from), usize::from(unit.to));
            let Some(range) = places.get_mut(from..=to).filter(|range| !range.is_empty()) else {
                let rule = format!("there are no numbers from {from} to {to}");
                report(rule, format!("write numbers up to {}, the smaller one first", ENDINGS - 1));
                continue;
            };
            for (number, owner) in (from..).zip(range) {
                match owner {
                    Some(other) => {
                        let rule = format!("{number} belongs to unit {other} of the list as well");
                        report(rule, "let each number belong to one unit".to_owned());
                        break;
                    }
                    None => *owner = Some(u8::try_from(place).unwrap_or(u8::MAX)),
                }
            }
        }
        let missing = places.iter().position(Option::is_none);
        if let Some(number) = missing.filter(|_| errors.is_empty()) {
            let rule = format!("{number} belongs to no unit");
            let problem = Problem::new(rule, format!("add a unit with `from: {number}`"));
            errors.push(FilterError::new(problem).key("units"));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let rule = |unit: &UnitRange| RuleName {
            table: config.table.as_str().into(),
            rule: unit.rule.as_str().into(),
        };
        Ok(Self {
            header: config.header.to_ascii_lowercase().into_bytes().into(),
            rules: config.units.iter().map(rule).collect(),
            places: places.map(Option::unwrap_or_default),
        })
    }

    fn handle_head(&self, head: &RequestHead<'_>) -> Handled {
        let mut values = head.find_all(&self.header);
        let Some(value) = values.next() else { return Handled::PassOn };
        let number = ending_of(value).filter(|_| values.next().is_none());
        match number.and_then(|number| self.places.get(number)) {
            Some(place) => Handled::Rule(usize::from(*place)),
            None => Handled::Refuse,
        }
    }
}

impl RouteHandler for Unit {
    fn rules(&self) -> Vec<RuleName> {
        self.rules.clone()
    }

    fn handle(&self, asked: &Asked<'_>) -> Handled {
        self.handle_head(asked.head)
    }
}

/// What a number ends in, as two digits say it; none if it is no number.
fn ending_of(text: &[u8]) -> Option<usize> {
    if text.is_empty() || text.len() > DIGITS_MAX || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let last = text.get(text.len().saturating_sub(2)..)?;
    Some(last.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use wire::h1::{HeadLimits, Scan, decode_request};
    use wire::head::HeadIndex;
    use wire::path::Slashes;

    use super::*;

    fn config(units: &[(&str, u8, u8)]) -> UnitConfig {
        let range = |(rule, from, to): &(&str, u8, u8)| UnitRange {
            rule: (*rule).to_owned(),
            from: *from,
            to: *to,
        };
        UnitConfig {
            header: "X-User".to_owned(),
            table: "units".to_owned(),
            units: units.iter().map(range).collect(),
        }
    }

    #[test]
    fn the_last_digits_say_which_unit() {
        let unit = Unit::new(&config(&[("a", 0, 49), ("b", 50, 98), ("c", 99, 99)])).unwrap();
        assert_eq!(unit.rules().len(), 3);
        for (fields, handled) in [
            ("x-user: 0\r\n", Handled::Rule(0)),
            ("X-USER: 49\r\n", Handled::Rule(0)),
            ("x-user: 4750\r\n", Handled::Rule(1)),
            ("x-user: 099\r\n", Handled::Rule(2)),
            ("x-user: 9999999999999999999\r\n", Handled::Rule(2)),
            ("x-user: 99999999999999999999\r\n", Handled::Refuse),
            ("", Handled::PassOn),
            ("x-users: 1\r\n", Handled::PassOn),
            ("x-user: \r\n", Handled::Refuse),
            ("x-user: 1a\r\n", Handled::Refuse),
            ("x-user: -1\r\n", Handled::Refuse),
            ("x-user: 1,2\r\n", Handled::Refuse),
            ("x-user: 1\r\nx-user: 1\r\n", Handled::Refuse),
        ] {
            let text = format!("GET / HTTP/1.1\r\nhost: x\r\n{fields}\r\n");
            let (mut scan, mut index) = (Scan::default(), HeadIndex::default());
            let limits = HeadLimits {
                request_line_bytes_max: 100,
                head_bytes_max: 1_000,
                fields_max: 10,
                slashes: Slashes::default(),
            };
            let decoded = decode_request(text.as_bytes(), &mut scan, &limits, &mut index);
            let (head, _) = decoded.unwrap().unwrap();
            assert_eq!(unit.handle_head(&head), handled, "{fields:?}");
        }
    }

    #[test]
    fn each_number_belongs_to_one_unit() {
        for (units, said) in [
            (&[("a", 0, 49), ("b", 49, 99)][..], "49 belongs to unit 0 of the list as well"),
            (&[("a", 0, 49), ("b", 51, 99)], "50 belongs to no unit"),
            (&[("a", 0, 100)], "there are no numbers from 0 to 100"),
            (&[("a", 9, 8)], "there are no numbers from 9 to 8"),
            (&[], "0 belongs to no unit"),
        ] {
            let errors = Unit::new(&config(units)).unwrap_err();
            assert!(format!("{errors:?}").contains(said), "{errors:?}");
        }
        let mut odd = config(&[("a", 0, 99)]);
        odd.header = "a b".to_owned();
        assert_eq!(Unit::new(&odd).unwrap_err().len(), 1);
    }
}
