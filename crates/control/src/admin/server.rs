//! The server: bounded in connections, head bytes and time.
//!
//! It always has room for one more: at [`CONNECTIONS_MAX`] the connection that has been silent
//! longest makes room, so that connections that say nothing cannot keep an operator out.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::Either;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::Instant;

use super::answer::{Answer, JSON};
use super::hosts::{self, Hosts};
use super::pages::{self, Asked, Page};
use super::patience::Patient;
use super::pieces::{Content, Pieces};
use super::socket::{Acceptor, AdminSocket, Stream};
use super::{Query, connections, explain};

/// Connections open at a time. One more closes the one that has been silent longest; it waits only
/// while every connection is being answered.
const CONNECTIONS_MAX: usize = 64;

/// Bytes of a request head, which is also what hyper buffers: what is asked of `/explain` may be a head of a client's.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// To read a request head; also how long a kept connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Life of a connection: a client that takes its answer in drops is let go.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);

/// Rest after a failed accept, which is most likely for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Between two lines of the log about connections that cannot be accepted.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// How long control, or the log writer, may take to write a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long running answers may take at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The same where another process has taken this one's place, which nothing waits for: to write the page, and to take it.
const RELEASED_TIMEOUT: Duration = PAGE_TIMEOUT.saturating_mul(2);

/// How long the connections of such a process are waited for that have not asked anything yet.
const LAST_QUESTIONS: Duration = Duration::from_millis(250);

/// What is served on a socket.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// Every page, to requests for these hosts.
    All(Hosts),
    /// What scrapers and probes ask for.
    Metrics,
}

/// What becomes of open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// They are kept.
    No,
    /// Each closes behind its next answer: another process answers from now on.
    AfterAnswer,
    /// They close, each behind the answer that is being given.
    Now,
}

/// The running server.
#[derive(Debug)]
pub(crate) struct Server {
    closing: watch::Sender<Closing>,
    /// Asks for the socket to be closed, and for a message when it is.
    releasing: mpsc::Sender<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    is_metrics: bool,
}

impl Server {
    /// Whether it answers what scrapers and probes ask for, and nothing else.
    pub(crate) const fn is_metrics(&self) -> bool {
        self.is_metrics
    }

    /// Whether it has stopped, and none of its connections is open.
    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Serves `socket`; queries go to `queries`.
    pub(crate) fn start(
        socket: AdminSocket,
        scope: Scope,
        queries: mpsc::Sender<Query>,
        workers: u32,
    ) -> io::Result<Self> {
        let acceptor = socket.into_acceptor()?;
        let scope = match scope {
            Scope::All(_) if acceptor.is_unix() => Scope::All(Hosts::Any),
            scope => scope,
        };
        let (closing, is_closing) = watch::channel(Closing::No);
        let is_metrics = matches!(scope, Scope::Metrics);
        let pages = Pages { scope, queries, workers };
        let (releasing, release) = mpsc::channel(1);
        let task = tokio::spawn(accept(acceptor, pages, is_closing, release));
        Ok(Self { closing, releasing, task, is_metrics })
    }

    /// Stops accepting, and answers on connections that are open what is asked next, at the end of which they close. The
    /// receiver hears when another process may listen on the address.
    pub(crate) fn release(&self) -> oneshot::Receiver<()> {
        let (done, is_done) = oneshot::channel();
        self.closing.send_replace(Closing::AfterAnswer);
        // Full means that it was asked before.
        let _ = self.releasing.try_send(done);
        is_done
    }

    /// Stops accepting and gives running answers a moment.
    pub(crate) async fn close(self) {
        self.close_within(CLOSE_TIMEOUT).await;
    }

    /// The same of a server that was released: what is being answered is answered, and so is what a connection that was
    /// accepted before is about to ask. To close that without an answer would look like a failure.
    pub(crate) async fn close_released(mut self) {
        if tokio::time::timeout(LAST_QUESTIONS, &mut self.task).await.is_err() {
            self.close_within(RELEASED_TIMEOUT).await;
        }
    }

    async fn close_within(self, timeout: Duration) {
        self.closing.send_replace(Closing::Now);
        let _ = tokio::time::timeout(timeout, self.task).await;
    }
}

async fn accept(
    acceptor: Acceptor,
    pages: Pages,
    mut closing: watch::Receiver<Closing>,
    mut release: mpsc::Receiver<oneshot::Sender<()>>,
) {
    let mut released = None;
    let of_connections = closing.clone();
    let mut open = Open::default();
    let mut warned_at: Option<Instant> = None;
    loop {
        tokio::select! {
            accepted = acceptor.accept() => match accepted {
                Ok(stream) => {
                    // Not given up for a release: what was accepted is answered.
                    open.make_room().await;
                    open.serve(stream, pages.clone(), of_connections.clone());
                }
                Err(error) => {
                    if warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                        warned_at = Some(Instant::now());
                        tracing::warn!("admin: cannot accept a connection: {error}");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(done) = release.recv() => {
                released = Some(done);
                break;
            }
            () = closes_now(&mut closing) => break,
        }
    }
    drop(acceptor);
    if let Some(done) = released {
        // Without a receiver the request is over.
        let _ = done.send(());
    }
    // Later questions are answered by the end of this.
    drop(release);
    while open.running.join_next().await.is_some() {}
}

/// Waits until connections are to be closed, or the server is gone.
async fn closes_now(closing: &mut watch::Receiver<Closing>) {
    drop(closing.wait_for(|closing| *closing == Closing::Now).await);
}

/// The open connections.
#[derive(Default)]
struct Open {
    running: JoinSet<()>,
    connections: Vec<(Arc<Silence>, AbortHandle)>,
    silences: Arc<Silences>,
}

impl Open {
    fn serve(&mut self, stream: Box<dyn Stream>, pages: Pages, closing: watch::Receiver<Closing>) {
        let silence = Arc::new(Silence::new(Arc::clone(&self.silences)));
        let connection = serve(stream, pages, Arc::clone(&silence), closing);
        let handle = self.running.spawn(async move {
            // A client that breaks off, or is too slow, is no news.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
        });
        self.connections.push((silence, handle));
    }

    /// Waits until there is room for another connection, which is at once unless every one is
    /// being answered.
    async fn make_room(&mut self) {
        while self.running.try_join_next().is_some() {}
        while self.running.len() >= CONNECTIONS_MAX {
            let silences = Arc::clone(&self.silences);
            if self.close_most_silent() {
                // Closed is what it is only when its task has ended.
                self.running.join_next().await;
            } else {
                tokio::select! {
                    _ = self.running.join_next() => {}
                    () = silences.begun.notified() => {}
                }
            }
        }
        self.connections.retain(|(_, handle)| !handle.is_finished());
    }

    /// Closes the connection that has been silent longest; false if none is silent.
    fn close_most_silent(&self) -> bool {
        let open = self.connections.iter().filter(|(_, handle)| !handle.is_finished());
        let silent = open.filter_map(|(silence, handle)| Some((silence.since()?, handle)));
        let longest = silent.min_by_key(|(since, _)| *since);
        longest.inspect(|(_, handle)| handle.abort()).is_some()
    }
}

/// The order in which connections fell silent.
#[derive(Debug, Default)]
struct Silences {
    count: AtomicU64,
    /// Learns when a connection falls silent.
    begun: Notify,
}

/// Since when a connection has been waiting for its client: to say something, or to read what it
/// asked for.
#[derive(Debug)]
struct Silence {
    /// The place in the order, or [`ANSWERING`].
    since: AtomicU64,
    silences: Arc<Silences>,
}

const ANSWERING: u64 = u64::MAX;

impl Silence {
    fn new(silences: Arc<Silences>) -> Self {
        let silence = Self { since: AtomicU64::new(ANSWERING), silences };
        silence.begin();
        silence
    }

    fn begin(&self) {
        let place = self.silences.count.fetch_add(1, Ordering::Relaxed);
        self.since.store(place, Ordering::Relaxed);
        self.silences.begun.notify_one();
    }

    fn end(&self) {
        self.since.store(ANSWERING, Ordering::Relaxed);
    }

    fn since(&self) -> Option<u64> {
        Some(self.since.load(Ordering::Relaxed)).filter(|since| *since != ANSWERING)
    }
}

async fn serve(
    stream: Box<dyn Stream>,
    pages: Pages,
    silence: Arc<Silence>,
    mut closing: watch::Receiver<Closing>,
) -> Result<(), hyper::Error> {
    let is_last = closing.clone();
    let gives_way = Arc::new(Notify::new());
    let of_pages = Arc::clone(&gives_way);
    let service = service_fn(move |request| {
        let (pages, silence, is_last) = (pages.clone(), Arc::clone(&silence), is_last.clone());
        let gives_way = Arc::clone(&of_pages);
        async move {
            silence.end();
            let mut response = pages.respond(&request, &gives_way).await;
            if *is_last.borrow() != Closing::No {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            silence.begin();
            Ok::<_, Infallible>(response)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        // As of `nc -N`: it reads, and has nothing more to say.
        .half_close(true)
        .serve_connection(TokioIo::new(Patient::new(stream)), service);
    let mut connection = std::pin::pin!(connection);
    let served = async {
        tokio::select! {
            result = connection.as_mut() => return result,
            () = closes_now(&mut closing) => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    tokio::select! {
        result = served => result,
        () = gives_way.notified() => Ok(()),
    }
}

/// Answers requests.
#[derive(Clone, Debug)]
struct Pages {
    scope: Scope,
    queries: mpsc::Sender<Query>,
    workers: u32,
}

impl Pages {
    /// The response; `gives_way` hears when the client has been reading it for too long.
    async fn respond(
        &self,
        request: &Request<Incoming>,
        gives_way: &Arc<Notify>,
    ) -> Response<PageBody> {
        let uri = request.uri();
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let headers = request.headers();
        if let Some(fault) = hosts::fault(request.version(), headers) {
            return response(Answer::text(400, format!("{fault}\n")));
        }
        let method = request.method().as_str();
        let asked = match &self.scope {
            Scope::All(hosts) => {
                if let Some(host) = hosts.stranger(uri, headers) {
                    return response(misdirected(host));
                }
                pages::find(method, path, query, wants_text(headers))
            }
            Scope::Metrics => pages::find_metrics(method, path, query),
        };
        match asked {
            Asked::Nothing(answer) => response(answer),
            Asked::WrongMethod { allow } => {
                let mut response = response(Answer::text(405, format!("{path}: {allow} only\n")));
                response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
                response
            }
            Asked::Page(Page::Drain | Page::Release | Page::Runtime(_) | Page::Drained(_))
            | Asked::Move(..)
                if is_cross_site(headers) =>
            {
                response(Answer::text(403, "a page of another site may not do that\n"))
            }
            Asked::Page(page) => {
                let (reply, answer) = oneshot::channel();
                match self.ask(Query::Page(page, reply), answer, CONTROL_SILENT).await {
                    Ok(Content::Whole(answer)) | Err(answer) => response(answer),
                    Ok(Content::Bounded(Answer { status, content_type, body }, page)) => {
                        response_of(status, content_type, page.body(body, gives_way))
                    }
                    Ok(Content::Pieces(pieces)) => in_pieces(pieces),
                }
            }
            Asked::Slow { as_text } => {
                let (reply, answer) = oneshot::channel();
                let query = Query::Slow { as_text, reply };
                match self.ask(query, answer, LOG_WRITER_SILENT).await {
                    Ok(body) => response(Answer::slow(as_text, body)),
                    Err(answer) => response(answer),
                }
            }
            Asked::Explain(request) => {
                let answer = in_time(explain::page(request, &self.queries), EXPLAIN_SILENT).await;
                response(answer.unwrap_or_else(|answer| answer))
            }
            Asked::Move(process, connection, to) => {
                let (reply, answer) = oneshot::channel();
                let query = Query::Move { process, connection, to, reply };
                let moved = self.ask(query, answer, MOVE_SILENT).await;
                response(moved.map_or_else(|it| it, connections::moved))
            }
            Asked::Connections(wanted) => {
                response(connections::page(wanted, self.workers, &self.queries).await)
            }
        }
    }

    /// What control answers, or what to say if it does not: `silent`, where it takes too long.
    async fn ask<T>(
        &self,
        query: Query,
        answer: oneshot::Receiver<T>,
        silent: &'static str,
    ) -> Result<T, Answer> {
        let asked = async {
            self.queries.send(query).await.ok()?;
            answer.await.ok()
        };
        in_time(asked, silent).await
    }
}

/// To a request that control does not answer within [`PAGE_TIMEOUT`].
const CONTROL_SILENT: &str = "the control thread did not answer in 5 s: try again\n";

/// The same of an explanation, which is found on a thread of its own.
const EXPLAIN_SILENT: &str = "the explanation takes longer than 5 s: try again when the process is less busy, \
    or run strait explain -c FILE\n";

/// The same of the log writer, which has the slow requests.
const LOG_WRITER_SILENT: &str = "the access log's writer did not answer in 5 s: try again\n";

/// The same of a move, which goes on.
const MOVE_SILENT: &str = "the move takes longer than 5 s: see /connections for the result\n";

/// What was asked for, unless it takes too long, or the process ends.
async fn in_time<T>(
    asked: impl Future<Output = Option<T>>,
    silent: &'static str,
) -> Result<T, Answer> {
    match tokio::time::timeout(PAGE_TIMEOUT, asked).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(Answer::text(503, "stopping\n")),
        Err(_) => Err(Answer::text(503, silent)),
    }
}

/// To a request for a host that this interface is not known as.
fn misdirected(host: &str) -> Answer {
    let shown: String = host.chars().take(HOST_CHARS_SHOWN).collect();
    Answer::text(
        421,
        format!(
            "the admin interface is not known as {shown:?}: ask for localhost or an IP address, \
             or add the name to `admin.hosts` of the configuration\n"
        ),
    )
}

/// Characters of a host that are shown to its sender.
const HOST_CHARS_SHOWN: usize = 100;

fn wants_text(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/plain") && !accept.contains("json"))
}

/// Whether a browser says that a page of another site makes this request (Fetch Metadata), or
/// would not say but names an origin that is not us.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let site = text(header::HeaderName::from_static("sec-fetch-site"));
    let origin = text(header::ORIGIN).map(|origin| origin.trim_start_matches("http://"));
    match (site, origin) {
        (Some(site), _) => !matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => text(header::HOST) != Some(origin),
        (None, None) => false,
    }
}

/// A body that is there, or is being written.
type PageBody = Either<Full<Bytes>, Pieces>;

fn response(answer: Answer) -> Response<PageBody> {
    response_of(answer.status, answer.content_type, Bytes::from(answer.body))
}

fn response_of(status: u16, content_type: &'static str, body: Bytes) -> Response<PageBody> {
    let mut response = of_type(content_type, Either::Left(Full::new(body)));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

fn in_pieces(pieces: Pieces) -> Response<PageBody> {
    of_type(JSON, Either::Right(pieces))
}

fn of_type(content_type: &'static str, body: PageBody) -> Response<PageBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::SERVER, HeaderValue::from_static("strait"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Pages show text of peers; a browser must not take it for anything else.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'"),
    );
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::UnreadPages;
    use super::super::patience::WRITE_TIMEOUT;
    use super::*;

    /// A connection to pages that are never written.
    fn connection() -> (tokio::io::DuplexStream, impl Future) {
        let pages = pages(Scope::Metrics);
        connection_to(pages, 4096)
    }

    fn pages(scope: Scope) -> Pages {
        Pages { scope, queries: mpsc::channel(1).0, workers: 1 }
    }

    /// A connection that holds so many bytes.
    fn connection_to(pages: Pages, room: usize) -> (tokio::io::DuplexStream, impl Future) {
        let (client, server) = tokio::io::duplex(room);
        let silence = Arc::new(Silence::new(Arc::default()));
        let (closing, is_closing) = watch::channel(Closing::No);
        let served = serve(Box::new(server), pages, silence, is_closing);
        (client, async move {
            let _ = served.await;
            drop(closing);
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_the_same_few_seconds_for_its_first_byte_and_for_its_next_request() {
        let (client, served) = connection();
        let began = Instant::now();
        served.await;
        assert_eq!(began.elapsed().as_secs(), HEAD_TIMEOUT.as_secs());
        drop(client);

        let (mut client, served) = connection();
        let began = Instant::now();
        client.write_all(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        served.await;
        assert_eq!(began.elapsed().as_secs(), HEAD_TIMEOUT.as_secs());
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    }

    async fn answer_to(pages: Pages, request: &str) -> String {
        let (mut client, served) = connection_to(pages, 4096);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let (_, read) = tokio::join!(served, client.read_to_string(&mut answer));
        read.unwrap();
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_for_an_unknown_host_is_misdirected_and_reaches_no_page() {
        let scope = Scope::All(Hosts::Known(["admin.example".into()].into()));
        for (host, status, part) in [
            ("evil.example:9901", "421", "\"evil.example:9901\": ask for localhost"),
            ("admin.example", "503", "stopping"),
            ("127.0.0.1:9901", "503", "stopping"),
        ] {
            for (method, path) in [("GET", "/config"), ("POST", "/drain"), ("POST", "/runtime?a=1")]
            {
                let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
                let answer = answer_to(pages(scope.clone()), &head).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
                assert!(answer.contains(part), "{host}: {answer}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_host_or_with_two_is_refused_on_both_sockets() {
        for scope in [Scope::Metrics, Scope::All(Hosts::Any), Scope::All(Hosts::Known([].into()))] {
            for (head, status) in [
                ("HTTP/1.1\r\n", "400"),
                ("HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n", "400"),
                ("HTTP/1.1\r\nhost: local host\r\n", "400"),
                ("HTTP/1.0\r\nhost: local host\r\n", "400"),
                ("HTTP/1.0\r\n", "503"),
                ("HTTP/1.1\r\nhost: localhost\r\n", "503"),
            ] {
                let request = format!("GET /metrics {head}\r\n");
                let answer = answer_to(pages(scope.clone()), &request).await;
                let is_answered = answer.split(' ').nth(1) == Some(status);
                assert!(is_answered, "{scope:?}, {request}: {answer}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn scrapers_have_their_pages_under_any_host_and_no_others() {
        for (method, path, status) in [
            ("GET", "/metrics", "503"),
            ("GET", "/ready", "503"),
            ("HEAD", "/healthz", "503"),
            ("POST", "/metrics", "405"),
            ("GET", "/config", "404"),
            ("GET", "/connections", "404"),
            ("GET", "/slow", "404"),
            ("GET", "/stats", "404"),
            ("GET", "/", "404"),
            ("POST", "/drain", "404"),
            ("POST", "/runtime?a=1", "404"),
            ("POST", "/release", "503"),
        ] {
            let head = format!("{method} {path} HTTP/1.1\r\nhost: strait.example\r\n\r\n");
            let answer = answer_to(pages(Scope::Metrics), &head).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        }
    }

    /// The answer is longer than what the connection holds.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_of_its_answer_is_let_go() {
        let (queries, mut asked) = mpsc::channel(1);
        let pages = Pages { scope: Scope::Metrics, queries, workers: 1 };
        tokio::spawn(async move {
            while let Some(Query::Page(_, reply)) = asked.recv().await {
                let _ = reply.send(Answer::metrics("x".repeat(1 << 20)).into());
            }
        });
        let (mut client, served) = connection_to(pages, 1024);
        let began = Instant::now();
        client.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        served.await;
        assert_eq!(began.elapsed().as_secs(), WRITE_TIMEOUT.as_secs());
        drop(client);
    }

    /// Pages of a megabyte each, of which so much may be unread.
    fn large_pages(unread: UnreadPages) -> Pages {
        let (queries, mut asked) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(Query::Page(_, reply)) = asked.recv().await {
                let answer = Answer::metrics("x".repeat(1 << 20));
                let mut page = unread.begin(1, None).unwrap();
                page.made(&answer);
                let _ = reply.send(Content::Bounded(answer, page));
            }
        });
        Pages { scope: Scope::Metrics, queries, workers: 1 }
    }

    const METRICS: &[u8] = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n";

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_ended_its_side_gets_its_whole_answer_in_the_time_of_others() {
        let (mut client, served) = connection_to(large_pages(UnreadPages::default()), 1024);
        let began = Instant::now();
        client.write_all(METRICS).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        let (_, read) = tokio::join!(served, client.read_to_string(&mut answer));
        read.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{}", &answer[..100]);
        assert!(answer.ends_with(&"x".repeat(1 << 20)), "{} bytes", answer.len());
        assert_eq!(began.elapsed().as_secs(), 0, "nothing more can come");

        let (mut client, served) = connection_to(large_pages(UnreadPages::default()), 1024);
        let began = Instant::now();
        client.write_all(METRICS).await.unwrap();
        client.shutdown().await.unwrap();
        served.await;
        assert_eq!(began.elapsed().as_secs(), WRITE_TIMEOUT.as_secs(), "it takes nothing");
        drop(client);
    }

    /// A client that takes a little now and then is no reason for others to go without.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_its_page_in_drops_is_closed_when_another_needs_the_room() {
        let unread = UnreadPages::default();
        let (mut client, served) = connection_to(large_pages(unread.clone()), 1024);
        let served = tokio::spawn(async move {
            served.await;
        });
        client.write_all(METRICS).await.unwrap();
        let mut some = [0; 100];
        for _ in 0..3 {
            client.read_exact(&mut some).await.unwrap();
            assert!(unread.begin(1 << 30, None).is_none(), "it has time yet");
            tokio::time::advance(Duration::from_secs(4)).await;
        }
        assert!(unread.begin(1 << 30, None).is_some());
        served.await.unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() <= 1024, "{} bytes", rest.len());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_names_who_is_silent() {
        for (request, silent) in [
            ("GET /config", "the control thread"),
            ("GET /slow", "the access log's writer"),
            ("GET /explain?url=/", "the explanation takes longer"),
            ("POST /connections/move?connection=0.0.0&to=1", "the move takes longer"),
        ] {
            // The receiver stays, and with it what was asked.
            let (queries, _asked) = mpsc::channel(1);
            let pages = Pages { scope: Scope::All(Hosts::Any), queries, workers: 1 };
            let head = format!("{request} HTTP/1.1\r\nhost: a\r\n\r\n");
            let answer = answer_to(pages, &head).await;
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains(silent), "{answer}");
        }
    }

    #[test]
    fn who_is_being_answered_is_not_silent_and_begins_anew_behind_the_others() {
        let silences = Arc::new(Silences::default());
        let [first, second] = [(); 2].map(|()| Silence::new(Arc::clone(&silences)));
        assert!(first.since() < second.since());
        first.end();
        assert_eq!(first.since(), None);
        first.begin();
        assert!(first.since() > second.since());
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (header::HeaderName::from_static(name), HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    #[test]
    fn only_another_sites_page_is_cross_site() {
        for (pairs, is_cross) in [
            (&[][..], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "same-origin")], false),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("origin", "http://a:1"), ("host", "a:1")], false),
            (&[("origin", "http://b"), ("host", "a:1")], true),
            (&[("origin", "null"), ("host", "a:1")], true),
        ] {
            assert_eq!(is_cross_site(&headers(pairs)), is_cross, "{pairs:?}");
        }
    }

    #[test]
    fn text_is_wanted_where_accept_names_it_and_not_json() {
        for (accept, wants) in [
            ("*/*", false),
            ("text/plain", true),
            ("text/plain, application/json", false),
            ("application/json", false),
        ] {
            assert_eq!(wants_text(&headers(&[("accept", accept)])), wants, "{accept}");
        }
        assert!(!wants_text(&HeaderMap::new()));
    }
}
