//! Proof that the processor has the instructions, as a value, and the one unsafe call that relies
//! on it.
//!
//! The kernel is safe code: its intrinsics take and give registers, no pointers, and are safe to
//! call from functions that are compiled for the same features. What remains is the step into such
//! a function from code that is compiled for any processor, where the features must be there.

use super::operands::{Arrangement, Operands, Outcome};

/// Says that this processor has the instructions of the kernel, and that the operating system saves
/// their registers. Nothing but [`Avx512Ifma::detect`] makes one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512Ifma {
    #[cfg(target_arch = "x86_64")]
    _detected: (),
    /// There is no such value for other processors.
    #[cfg(not(target_arch = "x86_64"))]
    never: std::convert::Infallible,
}

#[cfg(target_arch = "x86_64")]
impl Avx512Ifma {
    /// Asks the processor. Cheap: the standard library keeps the answer.
    pub(super) fn detect() -> Option<Self> {
        let is_there =
            is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma");
        is_there.then_some(Self { _detected: () })
    }

    /// Works out eight operations.
    #[expect(unsafe_code, reason = "the step into code for this processor; see the module's text")]
    pub(super) fn run<const H: usize, const F: usize>(
        self,
        operands: &Operands<H, F>,
        arrangement: Arrangement,
    ) -> Outcome<F> {
        // SAFETY: `avx512f` and `avx512ifma`, all that `run` is compiled for, are there, because
        // `self` is: its private field makes `detect` the only way to one.
        unsafe { super::kernel::run(operands, arrangement) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Avx512Ifma {
    /// Other processors have nothing of the kind.
    pub(super) fn detect() -> Option<Self> {
        None
    }

    /// Cannot be reached.
    pub(super) fn run<const H: usize, const F: usize>(
        self,
        _: &Operands<H, F>,
        _: Arrangement,
    ) -> Outcome<F> {
        match self.never {}
    }
}

/// For the tests of the arithmetic.
#[cfg(all(test, target_arch = "x86_64"))]
impl Avx512Ifma {
    #[expect(unsafe_code, reason = "the step into code for this processor; see the module's text")]
    pub(super) fn arithmetic<const B: usize>(
        self,
        asked: &super::lanes::tests::Question<B>,
    ) -> super::lanes::tests::Answer<B> {
        // SAFETY: as in `run`.
        unsafe { super::lanes::tests::arithmetic(asked) }
    }
}
