//! Pages that are written in pieces: their writer works on a thread of its own, which waits while the client
//! reads, so that neither control's turns nor its memory follow their size.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use config::snapshot::Snapshot;
use hyper::body::{Body, Bytes, Frame};
use serde::Serializer as _;
use serde::ser::SerializeMap as _;
use serde_json::Value;
use tokio::sync::mpsc;

use super::UnreadPage;
use super::answer::Answer;

/// Bytes of a piece, but for the last one.
const PIECE_BYTES: usize = 32 << 10;

/// Pieces that wait to be sent.
const PIECES_MAX: usize = 2;

/// What is sent back: at once, or as it is written.
#[derive(Debug)]
pub(crate) enum Content {
    Whole(Answer),
    /// The same, of which clients may leave only so much unread.
    Bounded(Answer, UnreadPage),
    /// JSON, with status 200.
    Pieces(Pieces),
}

impl From<Answer> for Content {
    fn from(answer: Answer) -> Self {
        Self::Whole(answer)
    }
}

/// The body of a page that is being written.
#[derive(Debug)]
pub(crate) struct Pieces {
    pieces: mpsc::Receiver<Piece>,
    has_ended: bool,
}

#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    End,
}

/// Writes a page.
#[derive(Debug)]
pub(crate) struct PieceWriter {
    pieces: mpsc::Sender<Piece>,
    buffer: Vec<u8>,
}

/// A writer, for a thread that may wait, and what it writes.
pub(crate) fn pieces() -> (PieceWriter, Pieces) {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let writer = PieceWriter { pieces: sender, buffer: Vec::with_capacity(PIECE_BYTES) };
    (writer, Pieces { pieces: receiver, has_ended: false })
}

impl PieceWriter {
    /// Ends the page. One that is dropped before is cut off, which its reader sees.
    ///
    /// # Errors
    ///
    /// The reader is gone.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.send(Piece::End)
    }

    fn send(&self, piece: Piece) -> io::Result<()> {
        self.pieces.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl io::Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PIECE_BYTES.saturating_sub(self.buffer.len());
        let taken = bytes.len().min(room);
        self.buffer.extend(bytes.iter().take(taken));
        if self.buffer.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE_BYTES));
        self.send(Piece::Bytes(piece.into()))
    }
}

/// Writes sections of `/config`, and then the configuration, entry by entry.
///
/// # Errors
///
/// The reader is gone.
pub(crate) fn write_config<F>(
    mut out: PieceWriter,
    sections: impl Iterator<Item = (String, Value)>,
    snapshot: &Snapshot<F>,
) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::pretty(&mut out);
    let mut page = serializer.serialize_map(None)?;
    for (name, value) in sections {
        page.serialize_entry(&name, &value)?;
    }
    page.serialize_entry("effective", &config::Effective(snapshot))?;
    page.end()?;
    out.write_all(b"\n")?;
    out.finish()
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let piece = ready!(self.pieces.poll_recv(cx));
        self.has_ended = !matches!(piece, Some(Piece::Bytes(_)));
        Poll::Ready(match piece {
            Some(Piece::Bytes(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::End) => None,
            None => Some(Err(io::Error::other("the page was cut off"))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_page_comes_in_pieces_and_its_writer_waits_for_the_reader() {
        let (mut writer, mut read) = pieces();
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(PIECE_BYTES * 5 + 7).collect();
        let page = bytes.clone();
        let written = tokio::task::spawn_blocking(move || {
            writer.write_all(&page)?;
            writer.finish()
        });
        let mut came = Vec::new();
        while let Some(frame) = read.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE_BYTES);
            came.extend_from_slice(&piece);
        }
        assert!(came == bytes);
        written.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_page_without_an_end_is_no_whole_page() {
        let (mut writer, mut read) = pieces();
        writer.write_all(b"{").unwrap();
        drop(writer);
        assert!(read.frame().await.unwrap().is_err());
        assert!(read.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_writer_without_a_reader_ends() {
        let (mut writer, read) = pieces();
        drop(read);
        let written = tokio::task::spawn_blocking(move || writer.write_all(&vec![0; PIECE_BYTES]));
        assert_eq!(written.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
