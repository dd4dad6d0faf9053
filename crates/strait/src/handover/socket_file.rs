//! The file of the socket of handovers: whether other processes still find this one by it.
//!
//! Whatever cleans the folder up takes the file away, and this process binds the path anew. A socket that another process has put there
//! stays, and is said.

use std::path::Path;

use control::SocketFileId;
use io::packets::{Access, PacketListener};

/// What is known of the file.
#[derive(Debug)]
pub(crate) struct SocketFile {
    id: Option<SocketFileId>,
    /// What was logged of it last.
    said: String,
}

impl SocketFile {
    /// That of a socket that listens at `path`.
    pub(crate) fn of(path: &Path) -> Self {
        Self { id: SocketFileId::at(path), said: String::new() }
    }

    /// Whether `path` leads to it.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.id.is_some() && self.id == SocketFileId::at(path)
    }

    /// Listens at `path` anew, if no process finds this one there and none listens.
    pub(super) fn restore(&mut self, path: &Path, access: Access) -> Option<PacketListener> {
        if self.is_at(path) {
            self.said.clear();
            return None;
        }
        let at = path.display();
        if !io::is_path_free(path) {
            self.say(format!(
                "handover: what stands at {at} is not this process's socket any more: `strait upgrade` does not reach this process until \
                 it is removed; this process binds the path anew then"
            ));
            return None;
        }
        let folder = io::packets::private_folder(path, access);
        let bound = folder
            .map_err(|error| error.to_string())
            .and_then(|()| PacketListener::bind(path, access).map_err(|it| it.to_string()));
        match bound {
            Ok(listener) => {
                tracing::warn!("handover: {at} was removed by another program, and is bound anew");
                *self = Self::of(path);
                Some(listener)
            }
            Err(error) => {
                self.say(format!(
                    "handover: {at} was removed by another program, and cannot be bound anew: {error}; `strait upgrade` does not reach \
                     this process until it can"
                ));
                None
            }
        }
    }

    /// Logs it once.
    fn say(&mut self, said: String) {
        if self.said != said {
            tracing::error!("{said}");
            self.said = said;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::DirBuilderExt as _;
    use std::os::unix::net::UnixListener;

    use io::packets::Packets;

    use super::*;

    #[test]
    fn a_socket_whose_file_is_gone_is_bound_anew_and_that_of_another_process_stays() {
        let folder =
            std::env::temp_dir().join(format!("strait-socket-file-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let (path, access) = (folder.join("strait.sock"), Access::Owner);
        let _first = PacketListener::bind(&path, access).unwrap();
        let mut file = SocketFile::of(&path);
        assert!(file.restore(&path, access).is_none(), "it is in its place");
        fs::remove_file(&path).unwrap();
        let _second = file.restore(&path, access).expect("nothing stands there");
        assert!(file.is_at(&path));
        assert!(Packets::connect(&path).is_ok());
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        assert!(file.restore(&path, access).is_none());
        assert!(file.said.contains("is not this process's socket any more"), "{}", file.said);
        // It has ended, and has left its file.
        drop(other);
        let _third = file.restore(&path, access).expect("no process listens there");
        // Its folder, too.
        fs::remove_dir_all(&folder).unwrap();
        let _fourth = file.restore(&path, access).expect("its folder is made anew");
        assert!(Packets::connect(&path).is_ok());
        fs::remove_dir_all(&folder).unwrap();
    }
}
