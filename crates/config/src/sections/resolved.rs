//! What the sections of the file say once every default is filled in, all but those that are lists.

use std::sync::Arc;

use crate::file;

/// All sections but those that are lists. What the process started with stays as `started` has it.
pub(crate) fn sections(file: &file::File, started: Option<&file::File>) -> Arc<file::File> {
    let started = started.unwrap_or(file);
    Arc::new(file::File {
        // What is shown is all of it.
        include: Vec::new(),
        admin: started.admin.clone(),
        workers: file::Workers::Options(started.workers.options()),
        handover: started.handover.clone(),
        state: started.state.as_ref().map(|state| file::State::Options(state.options())),
        rebalance: file.rebalance,
        locality: file.locality.clone(),
        runtime: file.runtime.clone(),
        listeners: Vec::new(),
        routes: Vec::new(),
        clusters: Vec::new(),
        resolvers: file.resolvers.clone(),
        limits: file.limits.clone(),
        metrics: file.metrics,
        access_log: file.access_log.clone(),
    })
}
