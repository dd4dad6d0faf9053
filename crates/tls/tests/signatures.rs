//! Signatures as a server would have them, judged by aws-lc-rs; and the keys that are refused.
#![expect(clippy::panic, clippy::unwrap_used, reason = "test code outside of test functions")]

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::{
    KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaEncoding,
    RsaParameters, UnparsedPublicKey,
};
use pkcs1::RsaPrivateKeyRef;
use pkcs8::PrivateKeyInfoRef;
use pkcs8::der::{Decode as _, Encode as _};
use tls::batch::{Batch, KeyError, KeySize, PrivateKey, Scheme, SubmitError};

const KEYS: [(KeySize, &[u8]); 6] = [
    (KeySize::Rsa2048, include_bytes!("keys/2048.der")),
    (KeySize::Rsa2048, include_bytes!("keys/2048-e3.der")),
    (KeySize::Rsa3072, include_bytes!("keys/3072.der")),
    (KeySize::Rsa3072, include_bytes!("keys/3072-e4294967291.der")),
    (KeySize::Rsa4096, include_bytes!("keys/4096.der")),
    (KeySize::Rsa4096, include_bytes!("keys/4096-e3.der")),
];

const MESSAGES: [&[u8]; 3] = [b"", b"a transcript of a handshake", &[0x5a; 1000]];

/// The judge of a scheme, and how it would sign where that leaves nothing to chance.
fn judge(scheme: Scheme) -> (&'static RsaParameters, Option<&'static dyn RsaEncoding>) {
    match scheme {
        Scheme::Pkcs1Sha256 => (&RSA_PKCS1_2048_8192_SHA256, Some(&RSA_PKCS1_SHA256)),
        Scheme::Pkcs1Sha384 => (&RSA_PKCS1_2048_8192_SHA384, Some(&RSA_PKCS1_SHA384)),
        Scheme::Pkcs1Sha512 => (&RSA_PKCS1_2048_8192_SHA512, Some(&RSA_PKCS1_SHA512)),
        Scheme::PssSha256 => (&RSA_PSS_2048_8192_SHA256, None),
        Scheme::PssSha384 => (&RSA_PSS_2048_8192_SHA384, None),
        Scheme::PssSha512 => (&RSA_PSS_2048_8192_SHA512, None),
    }
}

const SCHEMES: [Scheme; 6] = [
    Scheme::Pkcs1Sha256,
    Scheme::Pkcs1Sha384,
    Scheme::Pkcs1Sha512,
    Scheme::PssSha256,
    Scheme::PssSha384,
    Scheme::PssSha512,
];

#[test]
fn signatures_are_those_of_aws_lc() {
    for (size, der) in KEYS {
        let pair = KeyPair::from_pkcs8(der).unwrap();
        check(size, &pair, &PrivateKey::from_pkcs8(der).unwrap());
    }
}

#[test]
fn signatures_with_keys_that_nobody_had_before_are_those_of_aws_lc() {
    use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};

    for _ in 0..3 {
        let pair = KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
        let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        check(KeySize::Rsa2048, &pair, &PrivateKey::from_pkcs8(der.as_ref()).unwrap());
    }
}

fn check(size: KeySize, pair: &KeyPair, key: &PrivateKey) {
    let Some(mut batch) = Batch::new(size) else { return };
    assert_eq!(key.size(), size);
    for message in MESSAGES {
        for scheme in SCHEMES {
            batch.submit(scheme, key, scheme, message).unwrap();
        }
        for (scheme, signature) in batch.run() {
            let signature = signature.unwrap();
            let (parameters, encoding) = judge(scheme);
            UnparsedPublicKey::new(parameters, pair.public_key())
                .verify(message, signature)
                .unwrap_or_else(|_| panic!("{size:?} {scheme:?}"));
            if let Some(encoding) = encoding {
                let mut expected = vec![0; size.bytes()];
                pair.sign(encoding, &SystemRandom::new(), message, &mut expected).unwrap();
                assert_eq!(signature, expected, "{size:?} {scheme:?}");
            }
        }
    }
}

#[test]
fn a_salt_is_used_once() {
    let Some(mut batch) = Batch::new(KeySize::Rsa2048) else { return };
    let key = PrivateKey::from_pkcs8(KEYS[0].1).unwrap();
    for id in 0..8 {
        batch.submit(id, &key, Scheme::PssSha256, b"the same").unwrap();
    }
    let mut signatures: Vec<_> =
        batch.run().map(|(_, signature)| signature.unwrap().to_vec()).collect();
    signatures.sort();
    signatures.dedup();
    assert_eq!(signatures.len(), 8);
}

#[test]
fn answers_come_with_their_ids_in_order() {
    let Some(mut batch) = Batch::new(KeySize::Rsa2048) else { return };
    let key = PrivateKey::from_pkcs8(KEYS[0].1).unwrap();
    assert_eq!(batch.run().count(), 0);
    for id in ["seven", "three", "five"] {
        batch.submit(id, &key, Scheme::Pkcs1Sha256, id.as_bytes()).unwrap();
    }
    assert_eq!(batch.len(), 3);
    assert_eq!(batch.run().map(|(id, _)| id).collect::<Vec<_>>(), ["seven", "three", "five"]);
    assert!(batch.is_empty());
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let Some(mut batch) = Batch::new(KeySize::Rsa2048) else { return };
    let key = PrivateKey::from_pkcs8(KEYS[0].1).unwrap();
    let large = PrivateKey::from_pkcs8(KEYS[4].1).unwrap();
    let refused = batch.submit(0, &large, Scheme::PssSha256, b"");
    let sizes = SubmitError::Size { expected: KeySize::Rsa2048, found: KeySize::Rsa4096 };
    assert_eq!(refused, Err(sizes));
    for id in 0..8 {
        assert!(!batch.is_full());
        batch.submit(id, &key, Scheme::PssSha256, b"").unwrap();
    }
    assert!(batch.is_full());
    assert_eq!(batch.submit(8, &key, Scheme::PssSha256, b""), Err(SubmitError::Full));
    assert!(batch.run().all(|(id, signature)| id < 8 && signature.is_ok()));
}

#[test]
fn keys_that_batches_do_not_take_are_refused() {
    let rows: [(&[u8], KeyError); 8] = [
        (b"", KeyError::Form),
        (&KEYS[0].1[..600], KeyError::Form),
        (include_bytes!("keys/p256.der"), KeyError::NotRsa),
        (include_bytes!("keys/2048-pss.der"), KeyError::NotRsa),
        (include_bytes!("keys/2048-three-primes.der"), KeyError::MultiPrime),
        (include_bytes!("keys/1024.der"), KeyError::Size { bits: 1024 }),
        (include_bytes!("keys/2056.der"), KeyError::Size { bits: 2056 }),
        (include_bytes!("keys/2048-e33bits.der"), KeyError::PublicExponent),
    ];
    for (der, error) in rows {
        assert_eq!(PrivateKey::from_pkcs8(der).map(|key| key.size()), Err(error));
    }
}

#[test]
fn either_prime_may_be_the_greater() {
    use num_bigint::BigUint;

    for (size, der) in KEYS {
        let info = PrivateKeyInfoRef::from_der(der).unwrap();
        let parts = RsaPrivateKeyRef::from_der(info.private_key.as_bytes()).unwrap();
        let [p, q] = [parts.prime1, parts.prime2].map(|n| BigUint::from_bytes_be(n.as_bytes()));
        let inverse = p.modinv(&q).unwrap().to_bytes_be();
        let swapped = RsaPrivateKeyRef {
            prime1: parts.prime2,
            prime2: parts.prime1,
            exponent1: parts.exponent2,
            exponent2: parts.exponent1,
            coefficient: pkcs1::UintRef::new(&inverse).unwrap(),
            ..parts
        };
        let der = swapped.to_der().unwrap();
        check(size, &KeyPair::from_der(&der).unwrap(), &PrivateKey::from_pkcs1(&der).unwrap());
    }
}

#[test]
fn parts_that_contradict_each_other_are_refused() {
    let info = PrivateKeyInfoRef::from_der(KEYS[0].1).unwrap();
    let parts = RsaPrivateKeyRef::from_der(info.private_key.as_bytes()).unwrap();
    let (p, q) = (parts.prime1, parts.prime2);
    let (dp, dq) = (parts.exponent1, parts.exponent2);
    let odd_sizes = RsaPrivateKeyRef { prime1: dp, ..parts.clone() };
    let rows = [
        RsaPrivateKeyRef { prime1: q, prime2: p, ..parts.clone() },
        RsaPrivateKeyRef { exponent1: dq, exponent2: dp, ..parts.clone() },
        RsaPrivateKeyRef { coefficient: dp, ..parts.clone() },
        RsaPrivateKeyRef { prime2: p, ..parts.clone() },
    ];
    for parts in rows {
        let loaded = PrivateKey::from_pkcs1(&parts.to_der().unwrap());
        assert_eq!(loaded.map(|key| key.size()), Err(KeyError::Inconsistent));
    }
    let short = RsaPrivateKeyRef { prime1: parts.public_exponent, ..odd_sizes };
    let loaded = PrivateKey::from_pkcs1(&short.to_der().unwrap());
    assert_eq!(loaded.map(|key| key.size()), Err(KeyError::PrimeSize));
}

#[test]
fn a_key_shows_nothing_of_itself() {
    let key = PrivateKey::from_pkcs8(KEYS[0].1).unwrap();
    assert_eq!(format!("{key:?}"), "PrivateKey { size: Rsa2048, .. }");
}
