//! Signatures of RSA up to eight at a time.

use std::collections::VecDeque;

use super::{KeyOperations, SignJob, Signature, Signed, Tally};
use crate::batch::{Batch, KeySize};

/// Nanoseconds that a signature waits for others to be made with, at most: about what it takes to
/// make two alone. A peer that is not in the same room is further away than that.
pub const WAIT_NANOS_MAX: u64 = 500_000;

/// The same while others are likely to come in time: that long even where there is nothing else to do, as
/// at half of a core's load, since a signature that is made alone costs twice one of four.
pub const COMPANY_WAIT_NANOS_MAX: u64 = 3_000_000;

/// Jobs with which a batch costs as little for each as a full one: those of one pass.
const IN_BATCH_WORTH: usize = 4;

/// Where the mean of intervals begins, and the most that one counts: after a pause, dozens have to come
/// before any waits.
const INTERVAL_NANOS_MAX: u64 = 1_000_000_000;

/// The weight of an interval in the mean, as a shift.
const INTERVAL_SHIFT: u32 = 3;

/// Jobs that fill a batch.
const IN_BATCH_MAX: usize = Batch::<()>::OPERATIONS_MAX;

/// Makes signatures of RSA with keys of 2,048, 3,072 and 4,096 bits up to eight at a time, whatever
/// keys they are with.
///
/// A batch is run when it is full, when one in it has waited for [`WAIT_NANOS_MAX`], and when there
/// is nothing else to do, unless so many come that two more are likely in
/// [`COMPANY_WAIT_NANOS_MAX`]: then four, or that time, are waited for. A signature that is alone then is made as if there were no batches, which
/// costs less than a batch of one; so is the fifth of five. All others are made at once: where the
/// processor lacks the instructions, where the key is of another kind or size, and where a signature
/// of a batch did not verify, which is then made again.
///
/// The eighth job of a size is submitted for as long as the batch takes: 0.6 ms with 2,048 bits, 4.4
/// with 4,096. A [`CryptoThread`](super::CryptoThread) around it does that elsewhere.
///
/// Eight whole handshakes of RSA-2048 in TLS 1.3 at a time, both sides and in memory, take 0.58 of
/// what they take one by one, and the server's side alone 0.44 (medians of the ratios of 14 rounds
/// on an AMD EPYC of the fifth generation): `cargo bench -p tls --bench handshake -- eight`. To wait,
/// without batches, costs less than the noise.
#[derive(Debug, Default)]
pub struct Batched {
    rsa2048: Waiting,
    rsa3072: Waiting,
    rsa4096: Waiting,
    done: VecDeque<Signed>,
    tally: Tally,
    arrivals: Arrivals,
}

/// How often jobs come.
#[derive(Debug)]
struct Arrivals {
    last: Option<u64>,
    /// The mean of the latest intervals, ns.
    interval: u64,
}

/// Jobs that wait for a batch of one size.
#[derive(Debug, Default)]
struct Waiting {
    jobs: Vec<Job>,
    /// Made when it is first needed, for it is large. By their places in the list.
    batch: Option<Batch<usize>>,
}

#[derive(Debug)]
struct Job {
    token: u64,
    job: SignJob,
    /// When it has waited for long enough.
    deadline: u64,
}

impl Batched {
    /// Jobs that wait for others.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting().map(|waiting| waiting.jobs.len()).sum()
    }

    /// Whether no job waits for others.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// There is nothing else to do: makes what is not better off with others that are likely to come.
    pub fn on_idle(&mut self, now_nanos: u64) {
        for size in KeySize::ALL {
            if self.of(size).deadline().is_some() && !self.is_company_likely(size, now_nanos) {
                self.run(size);
            }
        }
    }

    /// When [`Batched::on_idle`] is to be called, if nothing else happens.
    #[must_use]
    pub fn idle_deadline(&self) -> Option<u64> {
        let deadlines = self.waiting().filter_map(|waiting| {
            let is_worth = waiting.jobs.len() >= IN_BATCH_WORTH || !self.arrivals.are_frequent();
            waiting.deadline().map(|deadline| if is_worth { 0 } else { deadline })
        });
        deadlines.min()
    }

    fn is_company_likely(&mut self, size: KeySize, now_nanos: u64) -> bool {
        let are_frequent = self.arrivals.are_frequent();
        let waiting = self.of(size);
        are_frequent
            && waiting.jobs.len() < IN_BATCH_WORTH
            && waiting.deadline().is_some_and(|deadline| deadline > now_nanos)
    }

    fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        [&self.rsa2048, &self.rsa3072, &self.rsa4096].into_iter()
    }

    fn of(&mut self, size: KeySize) -> &mut Waiting {
        match size {
            KeySize::Rsa2048 => &mut self.rsa2048,
            KeySize::Rsa3072 => &mut self.rsa3072,
            KeySize::Rsa4096 => &mut self.rsa4096,
        }
    }

    /// Makes all that wait for this batch.
    fn run(&mut self, size: KeySize) {
        let mut jobs = std::mem::take(&mut self.of(size).jobs);
        // Four and one take less than five.
        let alone = if matches!(jobs.len(), 1 | 5) { jobs.pop() } else { None };
        if !jobs.is_empty() {
            self.count_size(jobs.len());
            self.run_batch(size, &jobs);
        }
        if let Some(Job { token, job, .. }) = alone {
            self.count_size(1);
            self.sign(token, &job);
        }
        // Its room is used again.
        jobs.clear();
        self.of(size).jobs = jobs;
    }

    fn run_batch(&mut self, size: KeySize, jobs: &[Job]) {
        let batch = self.of(size).batch.take().or_else(|| Batch::new(size));
        let Some(mut batch) = batch else {
            // Without batches no key of this size is held for one.
            return jobs.iter().for_each(|job| self.sign(job.token, &job.job));
        };
        for (index, Job { token, job, .. }) in jobs.iter().enumerate() {
            // It cannot be, but for a lack of random numbers.
            if !join(&mut batch, index, job) {
                self.sign(*token, job);
            }
        }
        for (index, signature) in batch.run() {
            let Some(Job { token, job, .. }) = jobs.get(index) else { continue };
            match signature {
                Ok(octets) => {
                    self.tally.batched += 1;
                    let result = Ok(Signature::trusted(octets.to_vec()));
                    self.done.push_back(Signed { token: *token, result });
                }
                Err(_fault) => self.sign(*token, job),
            }
        }
        self.of(size).batch = Some(batch);
    }

    /// Makes one alone.
    fn sign(&mut self, token: u64, job: &SignJob) {
        let result = job.sign();
        self.tally.count(&result);
        self.done.push_back(Signed { token, result });
    }

    fn count_size(&mut self, len: usize) {
        if let Some(count) = self.tally.sizes.get_mut(len) {
            *count += 1;
        }
    }
}

impl KeyOperations for Batched {
    fn submit(&mut self, token: u64, job: SignJob, now_nanos: u64) {
        let can_join = job.scheme.in_batches().is_some();
        let Some(key) = job.key.for_batches().filter(|_| can_join) else {
            return self.sign(token, &job);
        };
        let size = key.size();
        self.arrivals.push(now_nanos);
        let wait = match self.arrivals.are_frequent() {
            true => COMPANY_WAIT_NANOS_MAX,
            false => WAIT_NANOS_MAX,
        };
        let jobs = &mut self.of(size).jobs;
        jobs.push(Job { token, job, deadline: now_nanos.saturating_add(wait) });
        if jobs.len() == IN_BATCH_MAX {
            self.run(size);
        }
    }

    fn poll(&mut self, now_nanos: u64) -> Option<Signed> {
        for size in KeySize::ALL {
            if self.of(size).deadline().is_some_and(|deadline| deadline <= now_nanos) {
                self.run(size);
            }
        }
        self.done.pop_front()
    }

    fn flush(&mut self, _now_nanos: u64) {
        for size in KeySize::ALL {
            self.run(size);
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        self.waiting().filter_map(Waiting::deadline).min()
    }

    fn cancel(&mut self, token: u64) {
        for size in KeySize::ALL {
            self.of(size).jobs.retain(|job| job.token != token);
        }
        self.done.retain(|signed| signed.token != token);
    }

    fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { last: None, interval: INTERVAL_NANOS_MAX }
    }
}

impl Arrivals {
    fn push(&mut self, now_nanos: u64) {
        let last = self.last.replace(now_nanos);
        let interval = last.map_or(INTERVAL_NANOS_MAX, |last| now_nanos.saturating_sub(last));
        let interval = interval.min(INTERVAL_NANOS_MAX);
        self.interval -= self.interval >> INTERVAL_SHIFT;
        self.interval += interval >> INTERVAL_SHIFT;
    }

    /// Whether two more are likely to come while one waits.
    const fn are_frequent(&self) -> bool {
        self.interval <= COMPANY_WAIT_NANOS_MAX / 2
    }
}

impl Waiting {
    /// That of the one that has waited longest.
    fn deadline(&self) -> Option<u64> {
        self.jobs.first().map(|job| job.deadline)
    }
}

/// Adds a job to a batch, under its place in the list: whether it could be.
fn join(batch: &mut Batch<usize>, place: usize, job: &SignJob) -> bool {
    let (Some(key), Some(scheme)) = (job.key.for_batches(), job.scheme.in_batches()) else {
        return false;
    };
    batch.submit(place, key, scheme, &job.message).is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::certificate::KeyKind;
    use crate::signing::key::Here;
    use crate::signing::{KeyHandle, ProviderId, SignatureScheme};

    /// How many are in the batches that are made of a job every so many nanoseconds, on a worker that has
    /// nothing else to do.
    fn sizes_at(interval: u64) -> [u64; 9] {
        let here = Here::of_tests(false);
        let key = KeyHandle::new(ProviderId(0), KeyKind::Rsa, Box::default(), [0; 32], Some(here));
        let (key, mut batched) = (Arc::new(key), Batched::default());
        let mut made = 0;
        for token in 0..100 {
            let due = token * interval;
            // The worker sleeps until then, unless something waits for less long.
            while let Some(deadline) = batched.idle_deadline().filter(|deadline| *deadline <= due) {
                let now = deadline.max(due.saturating_sub(interval));
                batched.on_idle(now);
                made += std::iter::from_fn(|| batched.poll(now)).count();
            }
            let (key, scheme) = (Arc::clone(&key), SignatureScheme::RsaPkcs1Sha256);
            batched.submit(token, SignJob { key, scheme, message: [7; 9].into() }, due);
            batched.on_idle(due);
            made += std::iter::from_fn(|| batched.poll(due)).count();
        }
        batched.flush(u64::MAX);
        made += std::iter::from_fn(|| batched.poll(u64::MAX)).count();
        assert_eq!(made, 100);
        batched.take_tally().sizes
    }

    #[test]
    fn frequent_jobs_wait_for_each_other_and_rare_ones_do_not_wait() {
        if !crate::batch::is_available() {
            return;
        }
        let rare = sizes_at(5_000_000);
        assert_eq!(rare[1], 100, "{rare:?}");
        let often = sizes_at(700_000);
        assert!(often[4] >= 10 && often[1] <= 60, "{often:?}");
    }

    #[test]
    fn what_does_not_verify_is_made_again_alone() {
        if !crate::batch::is_available() {
            return;
        }
        let key = |here| {
            let handle =
                KeyHandle::new(ProviderId(0), KeyKind::Rsa, Box::default(), [0; 32], Some(here));
            Arc::new(handle)
        };
        let whole = key(Here::of_tests(false));
        let broken = key(Here::of_tests(true));
        let mut batched = Batched::default();
        for token in 0..4 {
            let key = if token == 2 { &broken } else { &whole };
            let scheme = SignatureScheme::RsaPkcs1Sha256;
            let message = format!("message {token}").into_bytes().into();
            batched.submit(token, SignJob { key: Arc::clone(key), scheme, message }, 0);
        }
        batched.flush(0);
        let made: Vec<Signed> = std::iter::from_fn(|| batched.poll(0)).collect();
        assert_eq!(made.len(), 4);
        for Signed { token, result } in made {
            // That of the one that verified, and of aws-lc, are the same octets.
            let (key, scheme) = (Arc::clone(&whole), SignatureScheme::RsaPkcs1Sha256);
            let message = format!("message {token}").into_bytes().into();
            assert_eq!(result, SignJob { key, scheme, message }.sign(), "{token}");
        }
        let Tally { inline, batched, failed, sizes } = batched.take_tally();
        assert_eq!((inline, batched, failed, sizes[4]), (1, 3, 0, 1));
    }
}
