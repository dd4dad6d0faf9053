// An upstream on Go's net/http that speaks HTTP/1.1 and HTTP/2 on one port, the latter with prior
// knowledge or after an upgrade: `h2server PORT [CHAIN KEY CLIENTS]`. With the files of a certificate
// it speaks TLS with clients whose certificate is from the CA in the file CLIENTS.
//
// What it does is in the path: see the functions below. It prints a line for each request.
package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"
)

func main() {
	paths := http.NewServeMux()
	paths.HandleFunc("/", say)
	paths.HandleFunc("/echo", echo)
	paths.HandleFunc("/talk", talk)
	paths.HandleFunc("/digest", digest)
	paths.HandleFunc("/status/", status)
	paths.HandleFunc("/hints", hints)
	paths.HandleFunc("/breaks-off", breakOff)
	paths.HandleFunc("/endless", endless)
	paths.HandleFunc("/early", early)
	paths.HandleFunc("/fields/", fields)
	paths.HandleFunc("/slow", slow)
	paths.HandleFunc("/last", last)
	server := http.Server{Addr: "127.0.0.1:" + os.Args[1], Handler: logged(paths)}
	if len(os.Args) > 2 {
		fmt.Fprintln(os.Stderr, serveSecurely(&server, os.Args[2], os.Args[3], os.Args[4]))
		return
	}
	server.Handler = h2c.NewHandler(server.Handler, &http2.Server{MaxConcurrentStreams: 100})
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
}

func serveSecurely(server *http.Server, chain, key, clients string) error {
	authority, err := os.ReadFile(clients)
	if err != nil {
		return err
	}
	known := x509.NewCertPool()
	known.AppendCertsFromPEM(authority)
	server.TLSConfig = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known}
	return server.ListenAndServeTLS(chain, key)
}

func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("%s %s %s\n", r.Proto, r.Method, r.RequestURI)
		next.ServeHTTP(w, r)
	})
}

// What arrived, in words.
func say(w http.ResponseWriter, r *http.Request) {
	_, err := io.Copy(io.Discard, r.Body)
	check(err)
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %s\nhost: %s\n", r.Proto, r.Method, r.RequestURI, r.Host)
	if r.TLS != nil {
		version := map[uint16]string{tls.VersionTLS12: "1.2", tls.VersionTLS13: "1.3"}[r.TLS.Version]
		client := r.TLS.PeerCertificates[0].Subject.CommonName
		fmt.Fprintf(&text, "tls %s for %s, client %s, resumed: %v\n", version, r.TLS.ServerName, client, r.TLS.DidResume)
	}
	for name, values := range r.Header {
		for _, value := range values {
			fmt.Fprintf(&text, "%s: %s\n", strings.ToLower(name), value)
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(text.Len()))
	_, _ = io.WriteString(w, text.String())
}

// The body, once it is there; the request's trailer "sent" comes back as the trailer "seen", beside
// another one that was not announced. Flushed first, because Go would send a short body's length,
// which over HTTP/1.1 leaves no place for trailers.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	check(err)
	w.Header().Set("Trailer", "Seen")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	_, _ = w.Write(body)
	w.Header().Set("Seen", r.Trailer.Get("Sent"))
	w.Header().Set(http.TrailerPrefix+"Unannounced", "too")
}

// Each piece of the body as it comes.
func talk(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	piece := make([]byte, 1<<16)
	for {
		n, err := r.Body.Read(piece)
		_, _ = w.Write(piece[:n])
		w.(http.Flusher).Flush()
		if err == io.EOF {
			return
		}
		check(err)
	}
}

// The digest of a body that is not kept.
func digest(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	_, err := io.Copy(hash, r.Body)
	check(err)
	fmt.Fprintf(w, "%x", hash.Sum(nil))
}

// A status without a body, with a field that a body would have.
func status(w http.ResponseWriter, r *http.Request) {
	code, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/status/"))
	check(err)
	w.Header().Set("Etag", `"same"`)
	w.WriteHeader(code)
}

// Two informational responses in front of the final one.
func hints(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Link", "</style.css>;rel=preload")
	w.WriteHeader(http.StatusEarlyHints)
	w.WriteHeader(http.StatusProcessing)
	w.Header().Set("Link", "</final.css>;rel=preload")
	_, _ = io.WriteString(w, "after the hints")
}

// A response that ends in the middle.
func breakOff(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write(make([]byte, 1<<16))
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// A response that goes on until its client is gone.
func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		_, _ = w.Write(make([]byte, 1<<14))
		w.(http.Flusher).Flush()
		time.Sleep(time.Millisecond)
	}
	fmt.Println("the client is gone")
}

// A response before the request's body was read, which it never is.
func early(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, "no need to go on")
}

// As many fields as the path says, of a hundred bytes each.
func fields(w http.ResponseWriter, r *http.Request) {
	count, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/fields/"))
	check(err)
	for n := 0; n < count; n++ {
		w.Header().Set(fmt.Sprintf("X-Field-%d", n), strings.Repeat("v", 100))
	}
}

// A response that leaves time to do something about its request, once that is here.
func slow(w http.ResponseWriter, r *http.Request) {
	_, err := io.Copy(io.Discard, r.Body)
	check(err)
	time.Sleep(30 * time.Millisecond)
	_, _ = io.WriteString(w, "served")
}

// The last response of its connection, in either version.
func last(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	say(w, r)
}

// A request that cannot be read ends its response, too.
func check(err error) {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}
