//! Statuses as a closed set of labels.
//!
//! An upstream may answer with any three digits, and a label must not be a peer's to choose: the
//! codes registered with IANA have a label each, all others are one `other` a class.

use crate::cell::Counter;

/// The labels of a place in [`StatusCounters`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusLabel {
    pub(crate) class: &'static str,
    pub(crate) code: &'static str,
}

/// Codes with one place each.
const CODES: [(u16, &str); 62] = [
    (100, "100"),
    (101, "101"),
    (102, "102"),
    (103, "103"),
    (200, "200"),
    (201, "201"),
    (202, "202"),
    (203, "203"),
    (204, "204"),
    (205, "205"),
    (206, "206"),
    (207, "207"),
    (208, "208"),
    (226, "226"),
    (300, "300"),
    (301, "301"),
    (302, "302"),
    (303, "303"),
    (304, "304"),
    (305, "305"),
    (307, "307"),
    (308, "308"),
    (400, "400"),
    (401, "401"),
    (402, "402"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (406, "406"),
    (407, "407"),
    (408, "408"),
    (409, "409"),
    (410, "410"),
    (411, "411"),
    (412, "412"),
    (413, "413"),
    (414, "414"),
    (415, "415"),
    (416, "416"),
    (417, "417"),
    (418, "418"),
    (421, "421"),
    (422, "422"),
    (423, "423"),
    (424, "424"),
    (425, "425"),
    (426, "426"),
    (428, "428"),
    (429, "429"),
    (431, "431"),
    (451, "451"),
    (500, "500"),
    (501, "501"),
    (502, "502"),
    (503, "503"),
    (504, "504"),
    (505, "505"),
    (506, "506"),
    (507, "507"),
    (508, "508"),
    (510, "510"),
    (511, "511"),
];
/// Classes by the first digit; 0 stands for "no response", 6 for what is not a status of HTTP.
pub(crate) const CLASSES: [&str; 7] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx", "other"];
const PLACES: usize = CLASSES.len() + CODES.len();
/// The labels of the places: one a class, then one a code.
pub(crate) static STATUSES: [StatusLabel; PLACES] = labels();
/// The place of each status below 600.
static PLACE_OF: [u8; 600] = place_of();

/// A counter for each status label.
#[derive(Debug)]
pub(crate) struct StatusCounters([Counter; PLACES]);

impl Default for StatusCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl StatusCounters {
    /// Counts a status; 0 means that there was no response.
    pub(crate) fn increment(&self, status: u16) {
        let place =
            PLACE_OF.get(usize::from(status)).map_or(CLASSES.len() - 1, |p| usize::from(*p));
        if let Some(counter) = self.0.get(place) {
            counter.increment();
        }
    }

    /// The value at a place of [`STATUSES`].
    pub(crate) fn value(&self, place: usize) -> u64 {
        self.0.get(place).map_or(0, Counter::value)
    }
}

/// The place of a status's class in [`CLASSES`].
pub(crate) fn class_place(status: u16) -> usize {
    match status {
        0 => 0,
        100..600 => usize::from(status / 100),
        _ => CLASSES.len() - 1,
    }
}

#[expect(clippy::indexing_slicing, reason = "evaluated at compile time only")]
const fn labels() -> [StatusLabel; PLACES] {
    let mut labels = [StatusLabel { class: "none", code: "none" }; PLACES];
    let mut place = 1;
    while place < CLASSES.len() {
        labels[place] = StatusLabel { class: CLASSES[place], code: "other" };
        place += 1;
    }
    while place < PLACES {
        let (status, code) = CODES[place - CLASSES.len()];
        labels[place] = StatusLabel { class: CLASSES[(status / 100) as usize], code };
        place += 1;
    }
    labels
}

#[expect(clippy::indexing_slicing, reason = "evaluated at compile time only")]
#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 256 places")]
const fn place_of() -> [u8; 600] {
    let mut places = [(CLASSES.len() - 1) as u8; 600];
    places[0] = 0;
    let mut status = 100;
    while status < places.len() {
        places[status] = (status / 100) as u8;
        status += 1;
    }
    let mut code = 0;
    while code < CODES.len() {
        places[CODES[code].0 as usize] = (CLASSES.len() + code) as u8;
        code += 1;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of(status: u16) -> Vec<(&'static str, &'static str, u64)> {
        let counters = StatusCounters::default();
        counters.increment(status);
        STATUSES
            .iter()
            .enumerate()
            .map(|(place, label)| (label.class, label.code, counters.value(place)))
            .filter(|(_, _, count)| *count > 0)
            .collect()
    }

    #[test]
    fn each_status_counts_once_under_its_class() {
        for (status, class, code) in [
            (0, "none", "none"),
            (1, "other", "other"),
            (99, "other", "other"),
            (100, "1xx", "100"),
            (101, "1xx", "101"),
            (199, "1xx", "other"),
            (200, "2xx", "200"),
            (299, "2xx", "other"),
            (511, "5xx", "511"),
            (599, "5xx", "other"),
            (600, "other", "other"),
            (u16::MAX, "other", "other"),
        ] {
            assert_eq!(labels_of(status), [(class, code, 1)], "{status}");
            assert_eq!(CLASSES[class_place(status)], class, "{status}");
        }
        for (status, code) in CODES {
            assert_eq!(labels_of(status)[0].1, code);
            assert_eq!(status.to_string(), code);
        }
    }
}
