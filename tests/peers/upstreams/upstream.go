// An upstream with the parser of Go's net/http: prints each request that the parser lets through,
// once its body is read, and answers 200.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		fmt.Printf("%s %s\n", r.Method, r.RequestURI)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "go saw %s\n", r.RequestURI)
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
