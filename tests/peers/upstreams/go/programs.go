//go:build programs

// Package programs names other people's programs, so that go.mod and go.sum pin them with all that
// they are made of.
package programs

import (
	_ "github.com/Shopify/toxiproxy/v2/cmd/server"
	_ "github.com/bojand/ghz/cmd/ghz"
	_ "github.com/summerwind/h2spec/cmd/h2spec"
	_ "google.golang.org/grpc/interop/client"
	_ "google.golang.org/grpc/interop/server"
)
