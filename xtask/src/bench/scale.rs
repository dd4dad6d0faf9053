//! What a change costs in a large configuration: the program `scale`, of this commit and another.

use anyhow::Result;

use super::Options;
use crate::Surroundings;
use crate::plain::Plain;
use crate::profiling;
use crate::say;

/// Builds and runs it, in turns with that of the other commit if there is one.
///
/// # Errors
///
/// If it does not build, or fails.
pub(crate) fn run(at: &Surroundings, options: &Options) -> Result<()> {
    const PACKAGE: [&str; 4] = ["--package", "bench", "--bin", "scale"];
    profiling::build(&at.root, &PACKAGE)?;
    let mut programs = vec![("now", profiling::program(&at.target_directory()?, "scale"))];
    if let Some(reference) = &options.against {
        let place = at.check_out(reference)?;
        profiling::build(&place, &[&PACKAGE[..], &["--target-dir", "target"]].concat())?;
        programs.push((reference, profiling::program(&place.join("target"), "scale")));
    }
    for _ in 0..options.rounds {
        for (name, program) in &programs {
            say::line(format!("\n{name}"));
            Plain::new(&at.root, program, &[]).run()?;
        }
    }
    Ok(())
}
