//! Numbers as digits, without the formatting machinery: a line has some fifteen of them.

/// Appends a whole number.
pub(super) fn push_number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    for place in digits.iter_mut().rev() {
        *place = digit(value % 10);
        start -= 1;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(start..).unwrap_or_default());
}

/// Appends tenths as a number with one decimal.
pub(crate) fn push_tenths(out: &mut Vec<u8>, tenths: u64) {
    push_number(out, tenths / 10);
    out.extend_from_slice(&[b'.', digit(tenths % 10)]);
}

/// Appends a length of time in µs with one decimal, rounded.
pub(super) fn push_micros(out: &mut Vec<u8>, ns: u64) {
    push_tenths(out, ns / 100 + u64::from(ns % 100 >= 50));
}

/// Writes a number into places of a fixed width, with leading zeros; what is too large is cut.
pub(super) fn fill_digits(places: &mut [u8], mut value: u64) {
    for place in places.iter_mut().rev() {
        *place = digit(value % 10);
        value /= 10;
    }
}

fn digit(value: u64) -> u8 {
    b'0' + u8::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_as_std_does() {
        for value in [0, 1, 9, 10, 99, 100, 1_234_567_890, u64::MAX - 1, u64::MAX] {
            assert_eq!(text(|out| push_number(out, value)), value.to_string());
        }
    }

    #[test]
    fn micros_are_rounded_to_a_tenth() {
        for (ns, micros) in [
            (0, "0.0"),
            (49, "0.0"),
            (50, "0.1"),
            (1_000, "1.0"),
            (1_949, "1.9"),
            (1_950, "2.0"),
            (u64::MAX, "18446744073709551.6"),
        ] {
            assert_eq!(text(|out| push_micros(out, ns)), micros, "{ns}");
        }
    }
}
