//! What sources have delivered, on its way to the new process: a sealed file in memory.
//!
//! It may be hundreds of megabytes, and has keys: it goes as a whole, and not in frames. Where there is something wrong with
//! it, the handover goes on without: the new process begins as one whose sources have said nothing yet.

use std::fs::File;
use std::os::fd::OwnedFd;

use ::io::sealed;
use control::DeliveredResources;
use wiped::Wiped;

/// Bytes of the file: what a source may deliver.
const RESOURCES_FILE_BYTES_MAX: u64 = 256 << 20;

/// The file, and how many bytes it has; none if there is nothing to hand on, or no room for it.
pub(super) fn seal(delivered: &DeliveredResources) -> Option<(OwnedFd, u64)> {
    let bytes = delivered.encode()?;
    let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let result = if len > RESOURCES_FILE_BYTES_MAX {
        Err(format!("they have {len} bytes; at most {RESOURCES_FILE_BYTES_MAX} can be handed over"))
    } else {
        sealed::seal("strait-resources", &bytes).map_err(|error| error.to_string())
    };
    match result {
        Ok(file) => Some((file, len)),
        Err(reason) => {
            tracing::warn!(
                "handover: the new process starts without what sources have delivered: {reason}"
            );
            None
        }
    }
}

/// Reads such a file of the old process, which has to have so many bytes.
///
/// # Errors
///
/// It is no such file, or is damaged.
pub(super) fn read(file: OwnedFd, bytes: u64) -> Result<DeliveredResources, String> {
    let file = File::from(file);
    let len = sealed::sealed_len(&file, RESOURCES_FILE_BYTES_MAX).map_err(|it| it.to_string())?;
    if len != bytes {
        return Err(format!("the file has {len} bytes, and {bytes} were announced"));
    }
    let len = usize::try_from(len).map_err(|error| error.to_string())?;
    let mut bytes = Wiped::from(vec![0; len]);
    sealed::read_sealed(&file, &mut bytes).map_err(|error| error.to_string())?;
    DeliveredResources::decode(&bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_what_was_announced_is_refused() {
        let sealed = |bytes: &[u8]| sealed::seal("test", bytes).unwrap();
        let whole = b"strait state 2 0000000000000000\n{}";
        let error = |file, bytes| read(file, bytes).unwrap_err();
        assert_eq!(error(sealed(whole), whole.len() as u64), "what it sent of them is damaged");
        assert_eq!(error(sealed(whole), 9), "the file has 34 bytes, and 9 were announced");
        assert_eq!(error(sealed(b""), 0), "what it sent of them is damaged");
        let null = OwnedFd::from(File::open("/dev/null").unwrap());
        assert_eq!(error(null, 0), "it is not a sealed file in memory");
        assert!(seal(&DeliveredResources::default()).is_none());
    }
}
