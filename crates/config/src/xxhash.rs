//! XXH64: the hash of values and addresses that decides about clusters and endpoints.
//!
//! Each process and version computes the same one, so that a client stays where it is when it meets another
//! proxy, and so does Envoy. It is no defence: a client can find values that lead to one endpoint.

const P1: u64 = 0x9e37_79b1_85eb_ca87;
const P2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P3: u64 = 0x1656_67b1_9e37_79f9;
const P4: u64 = 0x85eb_ca77_c2b2_ae63;
const P5: u64 = 0x27d4_eb2f_1656_67c5;

/// The hash of `input` with this seed.
#[must_use]
pub fn xxh64(input: &[u8], seed: u64) -> u64 {
    let (stripes, mut rest) = input.as_chunks::<32>();
    let mut hash = if stripes.is_empty() { seed.wrapping_add(P5) } else { wide(stripes, seed) };
    hash = hash.wrapping_add(input.len() as u64);
    while let Some((lane, behind)) = rest.split_first_chunk::<8>() {
        hash ^= round(0, u64::from_le_bytes(*lane));
        hash = hash.rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
        rest = behind;
    }
    if let Some((half, behind)) = rest.split_first_chunk::<4>() {
        hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(P1);
        hash = hash.rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
        rest = behind;
    }
    for octet in rest {
        hash ^= u64::from(*octet).wrapping_mul(P5);
        hash = hash.rotate_left(11).wrapping_mul(P1);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(P2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(P3);
    hash ^ (hash >> 32)
}

/// Four lanes over pieces of 32 octets, put together.
fn wide(stripes: &[[u8; 32]], seed: u64) -> u64 {
    let mut lanes = [
        seed.wrapping_add(P1).wrapping_add(P2),
        seed.wrapping_add(P2),
        seed,
        seed.wrapping_sub(P1),
    ];
    for stripe in stripes {
        let (words, _) = stripe.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = round(*lane, u64::from_le_bytes(*word));
        }
    }
    let [a, b, c, d] = lanes;
    let sum = a.rotate_left(1).wrapping_add(b.rotate_left(7));
    let sum = sum.wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18));
    lanes.iter().fold(sum, |hash, lane| (hash ^ round(0, *lane)).wrapping_mul(P1).wrapping_add(P4))
}

const fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_specification_says() {
        let long = format!("{}xyz12", "0123456789abcdef".repeat(5));
        for (input, seed, hash) in [
            ("", 0, 0xef46_db37_51d8_e999),
            ("a", 0, 0xd24e_c4f1_a98c_6e5b),
            ("abc", 0, 0x44bc_2cf5_ad77_0999),
            ("abc", 1, 0xbea9_ca81_9932_8908),
            ("Nobody inspects the spammish repetition", 0, 0xfbce_a83c_8a37_8bf1),
            (&long, 0, 0x1519_948e_76b5_5df8),
            (&long, 1, 0xb662_0510_b811_cee1),
        ] {
            assert_eq!(xxh64(input.as_bytes(), seed), hash, "{input} {seed}");
        }
    }
}
