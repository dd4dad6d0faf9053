// A client on Go's net/http: `h2client VERSION URL CHECK [TLS]`, where VERSION is `1` or `2` (with prior
// knowledge), and CHECK is one of those below. It exits with 1 and says why if one does not hold.
//
// For a URL of https, TLS is `1.2` or `1.3`. The server is then shop.example by the word of the file
// ca.pem, VERSION is what the client offers (ALPN), and it shows client.pem, if there is such a file.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

var checks = map[string]func(*client) error{
	"asks":     asks,
	"bodies":   bodies,
	"breaks":   breaks,
	"cancel":   cancel,
	"cookies":  cookies,
	"early":    early,
	"fields":   fields,
	"hints":    hints,
	"many":     many,
	"resumes":  resumes,
	"statuses": statuses,
	"talk":     talk,
	"trailers": trailers,
}

func main() {
	version, url, holds := os.Args[1], os.Args[2], checks[os.Args[3]]
	way := transport(version)
	if len(os.Args) > 4 {
		way = secureTransport(version, os.Args[4])
	}
	client := client{http.Client{Transport: way, Timeout: 40 * time.Second}, url}
	check(holds(&client))
}

func transport(version string) http.RoundTripper {
	if version == "1" {
		return &http.Transport{MaxIdleConnsPerHost: 1000, DisableCompression: true}
	}
	return &http2.Transport{
		AllowHTTP:          true,
		DisableCompression: true,
		// All streams share one connection.
		StrictMaxConcurrentStreams: true,
		DialTLSContext: func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, address)
		},
	}
}

// The transport of net/http itself, whose connections come back with the tickets of others.
func secureTransport(version, secure string) http.RoundTripper {
	authority, err := os.ReadFile("ca.pem")
	check(err)
	number := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[secure]
	config := tls.Config{
		ServerName:         "shop.example",
		RootCAs:            x509.NewCertPool(),
		MinVersion:         number,
		MaxVersion:         number,
		ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}
	config.RootCAs.AppendCertsFromPEM(authority)
	own, err := tls.LoadX509KeyPair("client.pem", "client.key")
	if err == nil {
		config.Certificates = []tls.Certificate{own}
	} else if !errors.Is(err, os.ErrNotExist) {
		check(err)
	}
	way := &http.Transport{
		MaxIdleConnsPerHost: 1000,
		DisableCompression:  true,
		TLSClientConfig:     &config,
		ForceAttemptHTTP2:   version == "2",
	}
	if version == "1" {
		config.NextProtos = []string{"http/1.1"}
		way.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return way
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

type client struct {
	http.Client
	url string
}

// What a request brought back, read to its end.
type response struct {
	*http.Response
	body []byte
}

func (c *client) send(method, path string, body io.Reader, change func(*http.Request)) (*response, error) {
	request, err := http.NewRequest(method, c.url+path, body)
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(request)
	}
	got, err := c.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer got.Body.Close()
	read, err := io.ReadAll(got.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s after %d bytes: %w", method, path, len(read), err)
	}
	return &response{got, read}, nil
}

func noise(size int, seed int64) []byte {
	bytes := make([]byte, size)
	_, _ = rand.New(rand.NewSource(seed)).Read(bytes)
	return bytes
}

// A reader whose length is not known in advance.
type unsized struct{ io.Reader }

// The file `asks` has a request on each line: method, target, and fields, with tabs between them. What comes back is printed as
// `BODY|STATUS|LOCATION|X-CANARY`, a line each.
func asks(c *client) error {
	file, err := os.ReadFile("asks")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(strings.TrimSpace(string(file)), "\n") {
		words := strings.Split(line, "\t")
		request, err := http.NewRequest(words[0], c.url+words[1], nil)
		if err != nil {
			return err
		}
		for _, field := range words[2:] {
			name, value, _ := strings.Cut(field, ": ")
			if name == "host" {
				request.Host = value
			} else {
				request.Header.Set(name, value)
			}
		}
		// Redirects are not followed.
		got, err := c.Transport.RoundTrip(request)
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		body, err := io.ReadAll(got.Body)
		got.Body.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		text := strings.ReplaceAll(string(body), "\n", " ")
		fmt.Printf("%s|%d|%s|%s\n", text, got.StatusCode, got.Header.Get("location"), got.Header.Get("x-canary"))
	}
	return nil
}

// Bodies of every size come back as they were sent, with and without a length.
func bodies(c *client) error {
	for _, size := range []int{0, 1, 1023, 16383, 16384, 16385, 65535, 65536, 65537, 10 << 20} {
		sent := noise(size, int64(size))
		for _, body := range []io.Reader{bytes.NewReader(sent), unsized{bytes.NewReader(sent)}} {
			got, err := c.send("POST", "/echo", body, nil)
			if err != nil {
				return fmt.Errorf("%d bytes: %w", size, err)
			}
			if got.StatusCode != 200 || !bytes.Equal(got.body, sent) {
				return fmt.Errorf("%d bytes became %d, status %d", size, len(got.body), got.StatusCode)
			}
		}
	}
	sent := noise(10<<20, 1)
	got, err := c.send("PUT", "/digest", bytes.NewReader(sent), nil)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(sent)); string(got.body) != want {
		return fmt.Errorf("digest %s instead of %s", got.body, want)
	}
	return nil
}

// A response that ends in the middle is an error, whatever its framing, and the next one is whole.
func breaks(c *client) error {
	for n := 0; n < 5; n++ {
		if got, err := c.send("GET", "/breaks-off", nil, nil); err == nil {
			return fmt.Errorf("%d bytes pass for a whole body", len(got.body))
		}
		if _, err := c.send("GET", "/afterwards", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// A client that goes away in the middle stops the upstream, which prints so, and can go on.
func cancel(c *client) error {
	for n := 0; n < 5; n++ {
		ctx, stop := context.WithCancel(context.Background())
		request, err := http.NewRequestWithContext(ctx, "GET", c.url+"/endless", nil)
		if err != nil {
			stop()
			return err
		}
		got, err := c.Do(request)
		if err != nil {
			stop()
			return err
		}
		_, err = io.ReadFull(got.Body, make([]byte, 1<<17))
		stop()
		got.Body.Close()
		if err != nil {
			return err
		}
		if _, err := c.send("GET", "/afterwards", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// Cookies, which HTTP/2 cuts into fields, arrive in one (RFC 9113, section 8.2.3).
func cookies(c *client) error {
	got, err := c.send("GET", "/say", nil, func(r *http.Request) {
		r.Header.Set("Cookie", "a=1; b=2; c=3")
	})
	if err != nil {
		return err
	}
	if !strings.Contains(string(got.body), "\ncookie: a=1; b=2; c=3\n") {
		return fmt.Errorf("%s", got.body)
	}
	return nil
}

// A final response in front of the end of a body that is not read.
func early(c *client) error {
	for n := 0; n < 3; n++ {
		got, err := c.send("POST", "/early", bytes.NewReader(noise(10<<20, 1)), nil)
		if err != nil {
			return err
		}
		if got.StatusCode != 403 || string(got.body) != "no need to go on" {
			return fmt.Errorf("%d: %s", got.StatusCode, got.body)
		}
		if _, err := c.send("GET", "/afterwards", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// Heads that need more than a frame pass both ways.
func fields(c *client) error {
	const count = 90
	var name = func(n int) string { return fmt.Sprintf("X-Field-%d", n) }
	value := strings.Repeat("v", 300)
	got, err := c.send("GET", "/say", nil, func(r *http.Request) {
		for n := 0; n < count; n++ {
			r.Header.Set(name(n), value)
		}
	})
	if err != nil {
		return err
	}
	for n := 0; n < count; n++ {
		if !strings.Contains(string(got.body), "\n"+strings.ToLower(name(n))+": "+value+"\n") {
			return fmt.Errorf("no field %d in a response with status %d", n, got.StatusCode)
		}
	}
	got, err = c.send("GET", fmt.Sprintf("/fields/%d", count), nil, nil)
	if err != nil {
		return err
	}
	for n := 0; n < count; n++ {
		if got.Header.Get(name(n)) != strings.Repeat("v", 100) {
			return fmt.Errorf("no field %d of a response with status %d", n, got.StatusCode)
		}
	}
	return nil
}

// Informational responses come first and in order.
func hints(c *client) error {
	var seen []string
	trace := httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		seen = append(seen, fmt.Sprint(code, " ", header.Get("Link")))
		return nil
	}}
	got, err := c.send("GET", "/hints", nil, func(r *http.Request) {
		*r = *r.WithContext(httptrace.WithClientTrace(r.Context(), &trace))
	})
	if err != nil {
		return err
	}
	want := "103 </style.css>;rel=preload, 102 </style.css>;rel=preload"
	if strings.Join(seen, ", ") != want {
		return fmt.Errorf("%q instead of %q", seen, want)
	}
	if got.Header.Get("Link") != "</final.css>;rel=preload" || string(got.body) != "after the hints" {
		return fmt.Errorf("%v: %s", got.Header, got.body)
	}
	return nil
}

// Hundreds of requests at once, each with its own answer.
func many(c *client) error {
	var group sync.WaitGroup
	failed := make(chan error, 1000)
	for n := 0; n < 300; n++ {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			sent := noise(n*700, int64(n))
			trailer := fmt.Sprint("number ", n)
			got, err := c.send("POST", "/echo", unsized{bytes.NewReader(sent)}, func(r *http.Request) {
				r.Trailer = http.Header{"Sent": []string{trailer}}
			})
			if err != nil {
				failed <- err
			} else if !bytes.Equal(got.body, sent) || got.Trailer.Get("Seen") != trailer {
				failed <- fmt.Errorf("request %d: status %d, %d bytes, %v", n, got.StatusCode, len(got.body), got.Trailer)
			}
		}(n)
	}
	group.Wait()
	select {
	case err := <-failed:
		return fmt.Errorf("%w, and %d more", err, len(failed))
	default:
		return nil
	}
}

// The second connection of TLS resumes the session of the first, and knows whose it is.
func resumes(c *client) error {
	for _, again := range []bool{false, true} {
		got, err := c.send("GET", "/seen", nil, nil)
		if err != nil {
			return err
		}
		if got.TLS == nil || got.TLS.DidResume != again {
			return fmt.Errorf("resumed: %v; the second time: %v", !again, again)
		}
		if len(got.TLS.VerifiedChains) == 0 {
			return errors.New("the session has no state")
		}
		c.CloseIdleConnections()
	}
	return nil
}

// Responses without a body have none and keep what describes it.
func statuses(c *client) error {
	for _, code := range []int{200, 204, 304, 404, 500} {
		for _, method := range []string{"GET", "HEAD"} {
			got, err := c.send(method, fmt.Sprint("/status/", code), nil, nil)
			if err != nil {
				return err
			}
			if got.StatusCode != code || len(got.body) != 0 || got.Header.Get("Etag") != `"same"` {
				return fmt.Errorf("%s %d: %d, %v, %d bytes", method, code, got.StatusCode, got.Header, len(got.body))
			}
		}
	}
	got, err := c.send("HEAD", "/say", nil, nil)
	if err != nil {
		return err
	}
	if got.ContentLength < 50 || len(got.body) != 0 {
		return fmt.Errorf("HEAD: length %d, %d bytes", got.ContentLength, len(got.body))
	}
	return nil
}

// Each side waits for the other's piece before it sends its next.
func talk(c *client) error {
	from, to := io.Pipe()
	request, err := http.NewRequest("POST", c.url+"/talk", from)
	if err != nil {
		return err
	}
	got, err := c.Do(request)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	for n := 1; n <= 100; n++ {
		sent := noise(n*n, int64(n))
		if _, err := to.Write(sent); err != nil {
			return err
		}
		back := make([]byte, len(sent))
		if _, err := io.ReadFull(got.Body, back); err != nil {
			return fmt.Errorf("piece %d: %w", n, err)
		}
		if !bytes.Equal(back, sent) {
			return fmt.Errorf("piece %d is another", n)
		}
	}
	to.Close()
	if rest, err := io.ReadAll(got.Body); err != nil || len(rest) > 0 {
		return fmt.Errorf("%d bytes more, %w", len(rest), err)
	}
	return nil
}

// Trailers pass both ways, with a body and without.
func trailers(c *client) error {
	for _, size := range []int{0, 1, 100_000} {
		got, err := c.send("POST", "/echo", unsized{bytes.NewReader(noise(size, 1))}, func(r *http.Request) {
			r.Header.Set("Te", "trailers")
			r.Trailer = http.Header{"Sent": []string{"by the client"}}
		})
		if err != nil {
			return err
		}
		if len(got.body) != size {
			return errors.New("another body")
		}
		if got.Trailer.Get("Seen") != "by the client" || got.Trailer.Get("Unannounced") != "too" {
			return fmt.Errorf("with %d bytes: %v", size, got.Trailer)
		}
	}
	return nil
}
