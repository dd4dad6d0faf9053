//! Raw operations compared with another library's arithmetic, and keys that are corrupted in
//! memory. Neither can be reached through the public interface.

use num_bigint::BigUint;
use pkcs1::RsaPrivateKeyRef;
use pkcs8::PrivateKeyInfoRef;
use pkcs8::der::Decode as _;
use proptest::prelude::*;

use super::*;

/// Two keys of a size, of no use but for tests; their public exponents differ.
pub(super) const KEYS: [(KeySize, [&[u8]; 2]); 3] = [
    (
        KeySize::Rsa2048,
        [
            include_bytes!("../../tests/keys/2048.der"),
            include_bytes!("../../tests/keys/2048-e3.der"),
        ],
    ),
    (
        KeySize::Rsa3072,
        [
            include_bytes!("../../tests/keys/3072.der"),
            include_bytes!("../../tests/keys/3072-e4294967291.der"),
        ],
    ),
    (
        KeySize::Rsa4096,
        [
            include_bytes!("../../tests/keys/4096.der"),
            include_bytes!("../../tests/keys/4096-e3.der"),
        ],
    ),
];

/// A key twice: as the batch has it, and for other arithmetic.
pub(super) struct Pair {
    pub(super) key: PrivateKey,
    pub(super) n: BigUint,
    pub(super) d: BigUint,
    pub(super) p: BigUint,
    pub(super) q: BigUint,
}

impl Pair {
    pub(super) fn read(der: &[u8]) -> Self {
        let info = PrivateKeyInfoRef::from_der(der).unwrap();
        let parts = RsaPrivateKeyRef::from_der(info.private_key.as_bytes()).unwrap();
        let big = |part: pkcs1::UintRef<'_>| BigUint::from_bytes_be(part.as_bytes());
        Self {
            key: PrivateKey::from_pkcs8(der).unwrap(),
            n: big(parts.modulus),
            d: big(parts.private_exponent),
            p: big(parts.prime1),
            q: big(parts.prime2),
        }
    }

    fn sign(&self, message: &BigUint) -> BigUint {
        message.modpow(&self.d, &self.n)
    }
}

pub(super) fn push(batch: &mut Batch<usize>, key: &PrivateKey, message: &BigUint) {
    batch.push(batch.len(), key, &message.to_bytes_be());
}

pub(super) fn run(batch: &mut Batch<usize>) -> Vec<Result<BigUint, Fault>> {
    batch.run().map(|(_, bytes)| bytes.map(BigUint::from_bytes_be)).collect()
}

#[test]
fn raw_operations_on_edges_are_right() {
    for (size, keys) in KEYS {
        let Some(mut batch) = Batch::new(size) else { return };
        let pairs = keys.map(Pair::read);
        let one = BigUint::from(1_u8);
        for pair in &pairs {
            let (n, p, q) = (&pair.n, &pair.p, &pair.q);
            // Multiples of a prime have no inverse; those beside them are nearly none.
            let messages = [
                BigUint::ZERO,
                one.clone(),
                n - &one,
                n - p,
                q.clone(),
                p - &one,
                q + &one,
                n >> 1,
            ];
            for message in &messages {
                push(&mut batch, &pair.key, message);
            }
            let expected: Vec<_> = messages.iter().map(|message| Ok(pair.sign(message))).collect();
            assert_eq!(run(&mut batch), expected, "{size:?}");
        }
    }
}

#[test]
fn a_batch_may_hold_any_number_of_operations_and_mix_keys() {
    for (size, keys) in KEYS {
        let Some(mut batch) = Batch::new(size) else { return };
        let pairs = keys.map(Pair::read);
        for operations in 0..=Batch::<usize>::OPERATIONS_MAX {
            let mut expected = Vec::new();
            for lane in 0..operations {
                let pair = &pairs[(lane + operations) % 2];
                let message = &pair.n / BigUint::from(lane * 7 + operations + 1);
                push(&mut batch, &pair.key, &message);
                expected.push(Ok(pair.sign(&message)));
            }
            assert_eq!(run(&mut batch), expected, "{size:?}, {operations} operations");
            assert!(batch.is_empty());
        }
    }
}

#[test]
fn a_key_that_broke_in_memory_signs_nothing_and_leaves_other_keys_alone() {
    let parts: [fn(&mut PrivateKey) -> &mut u64; 12] = [
        |key| &mut key.primes[0].modulus.limbs[3],
        |key| &mut key.primes[0].modulus.inverse,
        |key| &mut key.primes[0].modulus.square[3],
        |key| &mut key.primes[0].cube[3],
        |key| &mut key.primes[0].exponent[3],
        |key| &mut key.primes[1].modulus.limbs[3],
        |key| &mut key.primes[1].exponent[3],
        |key| &mut key.coefficient[3],
        |key| &mut key.modulus.limbs[3],
        |key| &mut key.modulus.inverse,
        |key| &mut key.modulus.square[3],
        |key| &mut key.public_exponent,
    ];
    for (size, [whole, broken]) in KEYS {
        let Some(mut batch) = Batch::new(size) else { return };
        let whole = Pair::read(whole);
        // Large, so that each part is needed, and no power of an exponent, whose root might be small.
        let message = &whole.n / BigUint::from(5_u8);
        for (index, part) in parts.iter().enumerate() {
            let lane = index % Batch::<usize>::OPERATIONS_MAX;
            let mut broken = Pair::read(broken);
            *part(&mut broken.key) ^= 1 << 20;
            for other in 0..Batch::<usize>::OPERATIONS_MAX {
                let pair = if other == lane { &broken } else { &whole };
                push(&mut batch, &pair.key, &message);
            }
            let mut expected = vec![Ok(whole.sign(&message)); Batch::<usize>::OPERATIONS_MAX];
            expected[lane] = Err(Fault);
            assert!(run(&mut batch) == expected, "{size:?}, part {index}");
        }
    }
}

#[test]
fn what_did_not_verify_is_not_even_written_down() {
    let Some(mut batch) = Batch::new(KeySize::Rsa2048) else { return };
    let mut pair = Pair::read(KEYS[0].1[0]);
    pair.key.primes[0].exponent[0] ^= 4;
    push(&mut batch, &pair.key, &BigUint::from(2_u8));
    assert_eq!(run(&mut batch), [Err(Fault)]);
    assert!(batch.answers.iter().all(|answer| answer.bytes.iter().all(|byte| *byte == 0)));
}

#[test]
fn nothing_is_left_of_keys_after_a_run() {
    let Some(mut batch) = Batch::new(KeySize::Rsa2048) else { return };
    let pair = Pair::read(KEYS[0].1[0]);
    push(&mut batch, &pair.key, &BigUint::from(2_u8));
    run(&mut batch);
    let SizedOperands::Rsa2048(operands) = &batch.operands else { unreachable!() };
    let is_zero = |blocks: &[columns::Block]| {
        blocks.as_flattened().iter().all(|column| column.0 == [0; LANES])
    };
    for prime in &operands.primes {
        assert!(is_zero(&prime.modulus) && is_zero(&prime.exponent) && is_zero(&prime.square));
    }
    assert!(is_zero(&operands.coefficient) && is_zero(&operands.message));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn raw_operations_on_anything_are_right(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 512), 1..9),
        which in 0..3_usize,
    ) {
        let (size, keys) = KEYS[which];
        let Some(mut batch) = Batch::new(size) else { return Ok(()) };
        let pairs = keys.map(Pair::read);
        let mut expected = Vec::new();
        for (lane, message) in messages.iter().enumerate() {
            let pair = &pairs[lane % 2];
            let message = BigUint::from_bytes_be(message) % &pair.n;
            push(&mut batch, &pair.key, &message);
            expected.push(Ok(pair.sign(&message)));
        }
        prop_assert_eq!(run(&mut batch), expected);
    }
}
