//! Random numbers for identifiers and starting points; not for secrets.
//!
//! Seeded, so that a simulation can be replayed: xoshiro256++ (Blackman and Vigna).

/// The state of one generator.
#[derive(Clone, Debug)]
pub(crate) struct Random([u64; 4]);

impl Random {
    /// A generator for this seed; neighbouring seeds are as good as distant ones (SplitMix64).
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }))
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// The next 16 octets.
    pub(crate) fn octets(&mut self) -> [u8; 16] {
        (u128::from(self.next()) << 64 | u128::from(self.next())).to_be_bytes()
    }

    /// A version 4 UUID (RFC 9562, section 5.4) in its text form.
    pub(crate) fn uuid(&mut self) -> [u8; 36] {
        let high = (self.next() & !0xf000) | 0x4000;
        let low = (self.next() >> 2) | (1 << 63);
        let bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        let mut text = [b'-'; 36];
        let digits = (0..36).filter(|place| !matches!(place, 8 | 13 | 18 | 23));
        let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        for (place, nibble) in digits.zip(nibbles) {
            if let (Some(digit), Some(hex)) =
                (text.get_mut(place), b"0123456789abcdef".get(usize::from(nibble)))
            {
                *digit = *hex;
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_the_form_of_version_4() {
        let mut random = Random::new(7);
        let mut seen = Vec::new();
        for _ in 0..100 {
            let uuid = String::from_utf8(random.uuid().to_vec()).unwrap();
            assert_eq!(uuid.as_bytes()[14], b'4', "{uuid}");
            assert!(b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
            assert_eq!(uuid.bytes().filter(u8::is_ascii_hexdigit).count(), 32, "{uuid}");
            assert!(!seen.contains(&uuid));
            seen.push(uuid);
        }
    }
}
