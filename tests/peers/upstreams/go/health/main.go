// A server of gRPC's health checking protocol, by the library's own implementation: `health ADDRESS`. The service `api` serves
// at first; it does not after SIGUSR1, and does again after SIGUSR2.
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	state := health.NewServer()
	state.SetServingStatus("api", grpc_health_v1.HealthCheckResponse_SERVING)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for asked := range signals {
			status := grpc_health_v1.HealthCheckResponse_SERVING
			if asked == syscall.SIGUSR1 {
				status = grpc_health_v1.HealthCheckResponse_NOT_SERVING
			}
			state.SetServingStatus("api", status)
		}
	}()
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, state)
	fmt.Println(server.Serve(listener))
}
